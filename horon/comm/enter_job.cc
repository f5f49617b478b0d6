#include "horon/comm/enter_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "horon/base/error.h"
#include "horon/base/horovod.h"
#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/comm/mpi/mpi_part.h"
#include "horon/net/store_server.h"

namespace horon {
namespace {

// A store client that keeps the server in this process alive; the client goes first.
struct Hosted {
  std::unique_ptr<StoreThread> server;
  std::shared_ptr<Store> client;
};

constexpr auto kLinger = std::chrono::seconds(5);

// What one rank tells the others about the store it serves. Travels inside MPI or a private folder.
struct Invitation {
  std::vector<Endpoint> endpoints;
  Secret secret;
  std::string text() const { return format_endpoints(endpoints) + " " + secret.reveal_hex(); }
  static Invitation parse(const std::string& text) {
    const size_t space = text.find(' ');
    require(space != std::string::npos, "start: the invitation of rank 0 cannot be read");
    return {parse_endpoints(text.substr(0, space)), Secret::from_hex(text.substr(space + 1))};
  }
};

class JobEntry {
 public:
  JobEntry(const MembershipSpec& spec, const JobSettings& job_settings)
      : spec_(spec),
        job_settings_(job_settings),
        deadline_(Deadline::after(job_settings.duration("start_timeout"))),
        log_(parse_log_level(job_settings.text("log_level")),
             fmt::format("rank {}/{}", spec.rank, spec.size)) {}

  // Null where nobody else would wait for the lost.
  std::function<void()> on_failure() const {
    if (spec_.by != StartedBy::kMpi) return nullptr;
    return [options = mpi_options()] { abandon_mpi(options); };
  }

  std::shared_ptr<Store> connect() {
    switch (spec_.by) {
      case StartedBy::kNobody:
        return nullptr;
      case StartedBy::kLauncher:
        return make_tls_store(spec_.rendezvous,
                              Secret::from_file(job_settings_.text("secret_file")));
      case StartedBy::kMpi:
        return enter_by_mpi();
      default:
        return spec_.rendezvous.empty() ||
                       (spec_.one_host && job_settings_.text("secret_file").empty())
                   ? enter_by_folder()
                   : enter_by_address();
    }
  }

 private:
  MpiOptions mpi_options() const {
    return {"", spec_.rank, spec_.size, part_folders(job_settings_.text("parts"))};
  }

  std::shared_ptr<Store> enter_by_address() {
    const Secret secret =
        find_secret(spec_, job_settings_.text("secret_file"), job_settings_.flag("insecure"));
    if (job_settings_.flag("insecure") && job_settings_.text("secret_file").empty() &&
        !spec_.one_host)
      log_.warn("this job has no secret: anyone who can reach {} can connect",
                format_endpoints(spec_.rendezvous));
    if (!spec_.serves) return announce(make_tls_store(spec_.rendezvous, secret));
    const Endpoint& own = spec_.rendezvous.front();
    return host({{own.host}, secret}, own.port);
  }

  // The private folder of this user tells where rank 0 is, with the secret that it made for this
  // job; nothing of it is left once all have come.
  std::shared_ptr<Store> enter_by_folder() {
    const std::string folder = private_folder() + "/" + spec_.meeting;
    if (!spec_.serves) return follow_invitation(folder);
    const Endpoint own = spec_.rendezvous.empty() ? Endpoint{"127.0.0.1", 0} : spec_.rendezvous[0];
    return host(
        {{own.host}, Secret::random()}, own.port,
        [&](const Invitation& invitation) {
          make_file_store(folder)->set("world", invitation.text(), deadline_);
        },
        [&] {
          std::error_code ignored;
          std::filesystem::remove_all(folder, ignored);
        });
  }

  // The invitation may be that of an earlier job, killed while it started: it opens no door. Rank 0
  // replaces it before it lets anybody in, so that whoever is refused finds the right one.
  std::shared_ptr<Store> follow_invitation(const std::string& folder) const {
    for (std::string before;;) {
      const std::string text = read_invitation(folder);
      const Invitation found = Invitation::parse(text);
      try {
        return announce(make_tls_store(found.endpoints, found.secret));
      } catch (const Error& error) {
        if (error.exit_code() != ExitCode::kAuth || text == before) throw;
      }
      before = text;
    }
  }

  std::string read_invitation(const std::string& folder) const {
    try {
      return make_file_store(folder)->get("world", deadline_);
    } catch (const TimeoutError&) {
      throw TimeoutError(
          fmt::format(
              "start: rank 0 did not come within {}; it would have written its address to {}",
              format_duration(job_settings_.duration("start_timeout")), folder),
          {0});
    }
  }

  std::shared_ptr<Store> enter_by_mpi() {
    const MpiOptions options = mpi_options();
    std::string name(256, '\0');
    gethostname(name.data(), name.size() - 1);
    const auto hosts = mpi_exchange(options, name.c_str());
    if (!spec_.serves) {
      const auto said = mpi_exchange(options, "");
      const Invitation found = Invitation::parse(said.front());
      return announce(make_tls_store(found.endpoints, found.secret));
    }
    return host({addresses_towards(hosts), Secret::random()}, 0,
                [&](const Invitation& invitation) { mpi_exchange(options, invitation.text()); });
  }

  // The addresses of this host that lead to the others, by its routes.
  std::vector<std::string> addresses_towards(const std::vector<std::string>& hosts) const {
    if (!job_settings_.text("interface").empty())
      return {resolve_interface(job_settings_.text("interface"))};
    if (spec_.one_host) return {"127.0.0.1"};
    std::vector<std::string> addresses;  // no loopback: on another host that would be somebody else
    const auto add = [&](const std::string& address) {
      const bool known = std::find(addresses.begin(), addresses.end(), address) != addresses.end();
      if (!address.empty() && !known) addresses.push_back(address);
    };
    for (const std::string& host : hosts) {
      try {
        for (const std::string& address : resolve_host(host)) {
          const std::string own = source_address(address);
          if (!is_loopback(own)) add(own);
        }
      } catch (const IoError&) {           // a name that only its own host knows
        add(source_address("192.0.2.1"));  // where the default route goes out
      }
    }
    return addresses.empty() ? std::vector<std::string>{reachable("localhost")} : addresses;
  }

  struct Route {
    std::vector<std::string> addresses;
    Secret secret;
  };

  // `withdraw` undoes `invite` once all have come, or nobody may come any more.
  std::shared_ptr<Store> host(const Route& plan, int port,
                              const std::function<void(const Invitation&)>& invite = nullptr,
                              const std::function<void()>& withdraw = nullptr) {
    StoreServer::Options options;
    options.addresses.clear();
    for (const std::string& address : plan.addresses)
      options.addresses.push_back(reachable(address));
    options.port = port;
    auto hosted = std::make_shared<Hosted>();
    bool invited = false;  // one that is there already may be another job's
    const std::shared_ptr<void> guard(nullptr, [&](void*) {
      if (invited && withdraw) withdraw();
    });
    hosted->server = std::make_unique<StoreThread>(plan.secret, options, log_,
                                                   [&](const std::vector<Endpoint>& endpoints) {
                                                     if (invite) invite({endpoints, plan.secret});
                                                     invited = true;
                                                   });
    hosted->client = make_tls_store({hosted->server->endpoints().front()}, plan.secret);
    wait_for_all(*hosted->client);
    hosted->server->set_linger(kLinger);
    Store* client = hosted->client.get();
    return {hosted, client};
  }

  // A host's own name often leads to loopback only; others would not find us there.
  std::string reachable(const std::string& name) const {
    const std::string address = resolve_interface(name);
    if (spec_.one_host || !is_loopback(address)) return address;
    const std::string outward = source_address("192.0.2.1");
    return outward.empty() ? address : outward;
  }

  std::shared_ptr<Store> announce(std::shared_ptr<Store> store) const {
    store->set(fmt::format("entered/{}", spec_.rank), "1", deadline_);
    return store;
  }

  void wait_for_all(Store& store) const {
    std::vector<int> missing;
    for (int rank = 1; rank < spec_.size; ++rank) {
      try {
        store.get(fmt::format("entered/{}", rank), deadline_);
      } catch (const TimeoutError&) {
        missing.push_back(rank);
      }
    }
    if (missing.empty()) return;
    throw TimeoutError(
        fmt::format("start: {} did not come within {}; check that they were started "
                    "and can reach this host, or raise HORON_START_TIMEOUT",
                    name_ranks(missing), format_duration(job_settings_.duration("start_timeout"))),
        missing);
  }

  const MembershipSpec& spec_;
  const JobSettings& job_settings_;
  Deadline deadline_;
  Log log_;
};

}  // namespace

Membership enter_job(const JobSettings& job_settings, const EnvLookup& env) {
  const EnvLookup with_settings = [&](const std::string& name) -> std::optional<std::string> {
    const std::string& address = job_settings.text("rendezvous");  // also from a file
    if (name == job_setting_variable("rendezvous") && !address.empty()) return address;
    return env(name);
  };
  const MembershipSpec spec = read_membership(with_settings, is_own_address);
  require(spec.rank >= 0, fmt::format("this task is the {} of TF_CONFIG: only chief and worker "
                                      "take part in collectives",
                                      spec.role));
  if (spec.rank == 0) {
    const Log log(parse_log_level(job_settings.text("log_level")),
                  fmt::format("rank 0/{}", spec.size));
    for (const std::string& line : explain_idle_horovod(env)) log.warn("{}", line);
  }
  const bool serves_itself = spec.size > 1 && spec.by != StartedBy::kLauncher;
  Membership membership{spec.rank, spec.size, nullptr, serves_itself ? 0 : -1, spec.describe()};
  if (spec.size == 1) return membership;
  JobEntry entry(spec, job_settings);
  membership.on_failure = entry.on_failure();
  try {
    membership.store = entry.connect();
  } catch (...) {  // the ranks will not come together
    if (membership.on_failure) membership.on_failure();
    throw;
  }
  return membership;
}

BootstrapInfo bootstrap_info(const Membership& membership, const JobSettings& job_settings) {
  BootstrapInfo info;
  info.rank = membership.rank;
  info.size = membership.size;
  info.store = membership.store;
  info.job_settings = job_settings;
  info.on_failure = membership.on_failure;
  return info;
}

}  // namespace horon
