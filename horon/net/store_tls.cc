#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <mutex>
#include <random>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/net/store.h"
#include "horon/net/store_message.h"
#include "horon/net/tls.h"
#include "horon/net/wire.h"

namespace horon {
namespace {

// How much longer than the caller's own deadline an answer may be on its way.
constexpr auto kGrace = std::chrono::seconds(5);

constexpr auto kHandshake = std::chrono::seconds(10);

// The server ended the connection before it had looked at us: it was busy with unauthenticated
// connections.
struct TryAgain {};

// One connection: a question, an answer, the next question.
class Line {
 public:
  Line(Fd socket, const Secret& secret, Deadline deadline)
      : socket_(std::move(socket)), tls_(TlsSide::kClient, secret), frames_(kStoreFrame) {
    flush(deadline);
    while (true) {  // until the server says that it knows us
      if (const auto frame = frames_.next()) {
        if (*frame != kStoreWelcome)
          throw Error("store: the server does not answer in this protocol", ExitCode::kPeer);
        return;
      }
      receive(deadline);
      flush(deadline);
    }
  }

  std::string own_address() const { return local_endpoint(socket_.get()).host; }

  StoreReply ask(const StoreRequest& request, Deadline deadline) {
    tls_.write(make_frame(pack(request)));
    flush(deadline);
    while (true) {
      if (const auto frame = frames_.next()) return unpack_reply(*frame);
      receive(deadline);
    }
  }

 private:
  void flush(Deadline deadline) {
    const std::string bytes = tls_.take_output();
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t put =
          send(socket_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (put >= 0) {
        done += static_cast<size_t>(put);
      } else if (errno == EAGAIN) {
        wait(POLLOUT, deadline);
      } else if (errno != EINTR) {
        throw TryAgain();
      }
    }
  }

  void receive(Deadline deadline) {
    char piece[65536];
    const ssize_t got = recv(socket_.get(), piece, sizeof(piece), 0);
    if (got < 0 && errno == EINTR) return;
    if (got < 0 && errno == EAGAIN) return wait(POLLIN, deadline);
    if (got <= 0) throw TryAgain();
    tls_.feed({piece, static_cast<size_t>(got)});
    if (tls_.is_open()) frames_.feed(tls_.read());
  }

  void wait(short events, Deadline deadline) const {
    if (!wait_for(socket_.get(), events, deadline))
      throw TimeoutError("store: the server does not answer");
  }

  Fd socket_;
  TlsSession tls_;
  FrameReader frames_;
};

class TlsStore final : public Store {
 public:
  TlsStore(std::vector<Endpoint> endpoints, const Secret& secret)
      : endpoints_(std::move(endpoints)), secret_(secret) {
    require(!endpoints_.empty(), "store: no address of a server");
  }
  std::string own_address() override {
    const std::lock_guard lock(mutex_);
    return own_address_;
  }

 private:
  void do_set(const std::string& key, const std::string& value, Deadline deadline) override {
    ask({StoreOp::kSet, 0, {key}, value, 0}, deadline);
  }
  std::string do_get(const std::string& key, Deadline deadline) override {
    return do_get_all({key}, deadline).front();
  }
  std::vector<std::string> do_get_all(const std::vector<std::string>& keys,
                                      Deadline deadline) override {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline.left()).count();
    StoreReply reply = ask({StoreOp::kGet, static_cast<uint32_t>(left), keys, "", 0}, deadline);
    if (reply.values.size() != keys.size())
      throw Error("store: the answer has a wrong number of values", ExitCode::kPeer);
    return std::move(reply.values);
  }
  int64_t do_add(const std::string& key, int64_t amount, Deadline deadline) override {
    return ask({StoreOp::kAdd, 0, {key}, "", amount}, deadline).number;
  }
  bool do_remove(const std::string& key, Deadline deadline) override {
    return ask({StoreOp::kRemove, 0, {key}, "", 0}, deadline).number != 0;
  }

  StoreReply ask(const StoreRequest& request, Deadline deadline) {
    std::unique_ptr<Line> line = take_line(deadline);
    const Deadline answer = Deadline::after(deadline.left() + kGrace);
    StoreReply reply;
    try {
      reply = line->ask(request, answer);
    } catch (const TryAgain&) {
      throw IoError(fmt::format("store: the server at {} is gone", format_endpoints(endpoints_)),
                    ExitCode::kPeer);
    }
    {
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(line));
    }
    if (reply.status == StoreStatus::kUsage) throw UsageError(reply.why);
    if (reply.status == StoreStatus::kTimeout)
      throw TimeoutError(fmt::format("store: '{}' was not set before the deadline", reply.why));
    return reply;
  }

  std::unique_ptr<Line> take_line(Deadline deadline) {
    {
      const std::lock_guard lock(mutex_);
      if (!process_.is_here()) {  // a forked child must not speak on its parent's connections
        for (auto& line : idle_) static_cast<void>(line.release());
        idle_.clear();
        process_ = OwnProcess();
      }
      if (!idle_.empty()) {
        auto line = std::move(idle_.back());
        idle_.pop_back();
        return line;
      }
    }
    return connect(deadline);
  }

  // Until the server was met once it may not be there yet; afterwards a refusal is final.
  std::unique_ptr<Line> connect(Deadline deadline) {
    const Deadline least =
        Deadline::after(std::max<Clock::duration>(deadline.left(), std::chrono::seconds(2)));
    std::minstd_rand jitter(std::random_device{}());
    std::string why;
    for (int attempt = 0;; ++attempt) {
      if (auto line = try_connect(least, why)) {
        met_ = true;
        const std::lock_guard lock(mutex_);
        own_address_ = line->own_address();
        return line;
      }
      if ((met_ && attempt >= 5) || deadline.passed()) break;
      const int most = std::min(5 << std::min(attempt, 5), 100);
      std::this_thread::sleep_for(Milliseconds(1 + jitter() % most));
    }
    throw TimeoutError(
        fmt::format("store: no answer from {}: {}", format_endpoints(endpoints_), why));
  }

  // All endpoints at once; the first with which hands can be shaken.
  std::unique_ptr<Line> try_connect(Deadline deadline, std::string& why) {
    std::vector<Fd> sockets;
    for (const Endpoint& endpoint : endpoints_) {
      try {
        for (const std::string& address : resolve_host(endpoint.host)) {
          Fd socket = start_connect(address, endpoint.port);
          if (socket) {
            sockets.push_back(std::move(socket));
          } else {
            why = "connection refused";
          }
        }
      } catch (const IoError& error) {
        why = error.what();
      }
    }
    std::string refusal;
    while (!sockets.empty()) {
      std::vector<pollfd> ready;
      for (const Fd& socket : sockets) ready.push_back({socket.get(), POLLOUT, 0});
      const auto left = std::chrono::ceil<Milliseconds>(deadline.left()).count();
      const int count = poll(ready.data(), ready.size(), static_cast<int>(left));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        why = "connection timed out";
        break;
      }
      for (size_t i = ready.size(); i-- > 0;) {
        if (ready[i].revents == 0) continue;
        Fd socket = std::move(sockets[i]);
        sockets.erase(sockets.begin() + static_cast<std::ptrdiff_t>(i));
        if (auto line = shake_hands(std::move(socket), deadline, why, refusal)) return line;
      }
    }
    if (refusal.empty()) return nullptr;
    throw Error(fmt::format("store: the server at {} is not of this job, or this process is not: "
                            "the secrets differ ({})",
                            format_endpoints(endpoints_), refusal),
                ExitCode::kAuth);
  }

  // A refusal at one address is none of the job: another may lead to it.
  std::unique_ptr<Line> shake_hands(Fd socket, Deadline deadline, std::string& why,
                                    std::string& refusal) const {
    const int result = connect_result(socket.get());
    if (result != 0) {
      why = std::generic_category().message(result);
      return nullptr;
    }
    try {
      const Deadline soon = Deadline::after(deadline.left(kHandshake));
      return std::make_unique<Line>(std::move(socket), secret_, soon);
    } catch (const TryAgain&) {
      why = "the server closed the connection";
    } catch (const Error& error) {
      why = error.what();
      if (error.exit_code() == ExitCode::kAuth) refusal = error.what();
    }
    return nullptr;
  }

  std::vector<Endpoint> endpoints_;
  Secret secret_;
  std::atomic<bool> met_{false};
  std::mutex mutex_;  // guards all below
  OwnProcess process_;
  std::vector<std::unique_ptr<Line>> idle_;
  std::string own_address_;
};

}  // namespace

std::shared_ptr<Store> make_tls_store(const std::vector<Endpoint>& endpoints,
                                      const Secret& secret) {
  return std::make_shared<TlsStore>(endpoints, secret);
}

}  // namespace horon
