#include "horon/net/socket.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::string numeric_host(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST];
  if (getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

int port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

Address make_address(const std::string& numeric, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(numeric.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (result != 0) {
    throw IoError(fmt::format("'{}' is not an address: {}", numeric, gai_strerror(result)),
                  ExitCode::kLaunch);
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

// Peers that vanish silently are noticed within seconds instead of a quarter of an hour.
void set_options(int socket) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 10'000);
}

// "1234 (python3)" for the process that listens on the port, as far as we may see.
std::string port_owner(int port) {
  std::vector<std::string> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retries, uid, timeout, inode;
      words >> slot >> local >> remote >> state >> queues >> timer >> retries >> uid >> timeout >>
          inode;
      const size_t colon = local.rfind(':');
      const bool listens = state == "0A" && colon != std::string::npos &&
                           std::stoi(local.substr(colon + 1), nullptr, 16) == port;
      if (listens) inodes.push_back("socket:[" + inode + "]");
    }
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  while (const dirent* entry = proc ? readdir(proc.get()) : nullptr) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) continue;
    const std::string folder = fmt::format("/proc/{}/fd", entry->d_name);
    const std::unique_ptr<DIR, int (*)(DIR*)> fds(opendir(folder.c_str()), closedir);
    while (const dirent* fd = fds ? readdir(fds.get()) : nullptr) {
      char target[64] = {};
      if (readlink((folder + "/" + fd->d_name).c_str(), target, sizeof(target) - 1) < 0) continue;
      if (std::find(inodes.begin(), inodes.end(), target) == inodes.end()) continue;
      std::ifstream name(fmt::format("/proc/{}/comm", entry->d_name));
      std::string comm;
      std::getline(name, comm);
      return fmt::format("process {} ({})", entry->d_name, comm);
    }
  }
  return "a process of another user or host";
}

}  // namespace

Endpoint parse_endpoint(std::string_view text) {
  const std::string_view whole = trim(text);
  std::string_view host = whole;
  std::string_view port;
  if (whole.starts_with('[')) {
    const size_t close = whole.find("]:");
    require(close != std::string_view::npos, fmt::format("'{}' is not [address]:port", whole));
    host = whole.substr(1, close - 1);
    port = whole.substr(close + 2);
  } else {
    const size_t colon = whole.rfind(':');
    require(colon != std::string_view::npos && whole.find(':') == colon,
            fmt::format("'{}' is not host:port (an IPv6 address needs [ ])", whole));
    host = whole.substr(0, colon);
    port = whole.substr(colon + 1);
  }
  const bool good =
      !host.empty() && host.front() != '-' &&
      std::all_of(host.begin(), host.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
      });
  require(good, fmt::format("'{}' has an invalid host name before the port", whole));
  return {std::string(host),
          static_cast<int>(parse_integer(port, fmt::format("port of '{}'", whole), 1, 65535))};
}

std::vector<Endpoint> parse_endpoints(std::string_view text) {
  std::vector<Endpoint> endpoints;
  for (const std::string& piece : split(text, ',')) endpoints.push_back(parse_endpoint(piece));
  require(!endpoints.empty(), "no host:port given");
  return endpoints;
}

std::string format_endpoint(const Endpoint& endpoint) {
  return endpoint.host.find(':') == std::string::npos
             ? fmt::format("{}:{}", endpoint.host, endpoint.port)
             : fmt::format("[{}]:{}", endpoint.host, endpoint.port);
}

std::string format_endpoints(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (const Endpoint& endpoint : endpoints)
    text += (text.empty() ? "" : ",") + format_endpoint(endpoint);
  return text;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw io_error("getifaddrs");
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found.push_back({at->ifa_name, numeric_host(at->ifa_addr, length)});
  }
  freeifaddrs(list);
  return found;
}

std::string resolve_interface(const std::string& names) {
  const auto list = split(names, ',');
  require(!list.empty(), "no interface given");
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    try {
      return resolve_interface(list[i]);
    } catch (const UsageError&) {  // not on this host: the next one
    }
  }
  const std::string& name = list.back();
  std::string second;
  for (const InterfaceAddress& entry : interface_addresses()) {
    if (entry.interface != name) continue;
    if (entry.address.find(':') == std::string::npos) return entry.address;
    if (second.empty()) second = entry.address;
  }
  if (!second.empty()) return second;
  try {
    return resolve_host(name).front();
  } catch (const IoError&) {
    std::string known;
    for (const InterfaceAddress& entry : interface_addresses()) {
      if (known.find(entry.interface) == std::string::npos)
        known += (known.empty() ? "" : ", ") + entry.interface;
    }
    throw UsageError(
        fmt::format("'{}' is neither an interface of this host ({}) nor an address", name, known));
  }
}

std::vector<std::string> resolve_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (result != 0) {
    throw IoError(fmt::format("host '{}': {}", host, gai_strerror(result)), ExitCode::kLaunch);
  }
  std::vector<std::string> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const std::string numeric = numeric_host(at->ai_addr, at->ai_addrlen);
    if (std::find(addresses.begin(), addresses.end(), numeric) == addresses.end())
      addresses.push_back(numeric);
  }
  freeaddrinfo(found);
  return addresses;
}

std::string source_address(const std::string& address) {
  const Address target = make_address(address, 9);
  // Connecting a datagram socket asks the routes and sends nothing.
  const Fd probe(socket(target.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || connect(probe.get(), target.get(), target.length) != 0) return "";
  return local_endpoint(probe.get()).host;
}

Fd listen_on(const std::string& address, int port) {
  const Address where = make_address(address, port);
  Fd listener(socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) throw io_error("socket");
  const int on = 1;  // not SO_REUSEPORT: two servers on one port would share the clients
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener.get(), where.get(), where.length) == 0 && listen(listener.get(), 4096) == 0)
    return listener;
  if (errno == EADDRINUSE) {
    throw IoError(fmt::format("port {} is in use by {}; choose another, or end it",
                              format_endpoint({address, port}), port_owner(port)),
                  ExitCode::kLaunch);
  }
  throw IoError(
      fmt::format("listen on {}: {}", format_endpoint({address, port}), std::strerror(errno)),
      ExitCode::kLaunch);
}

Endpoint local_endpoint(int socket) {
  Address address;
  address.length = sizeof(address.storage);
  if (getsockname(socket, address.get(), &address.length) != 0) throw io_error("getsockname");
  return {numeric_host(address.get(), address.length), port_of(address.storage)};
}

Endpoint peer_endpoint(int socket) {
  Address address;
  address.length = sizeof(address.storage);
  if (getpeername(socket, address.get(), &address.length) != 0) return {"?", 0};
  return {numeric_host(address.get(), address.length), port_of(address.storage)};
}

Fd accept_from(int listener, bool* busy) {
  while (true) {
    Fd connection(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection) {
      set_options(connection.get());
      return connection;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (busy != nullptr) *busy = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return connection;
  }
}

Fd start_connect(const std::string& address, int port) {
  const Address target = make_address(address, port);
  Fd connection(socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection) throw io_error("socket");
  set_options(connection.get());
  const bool started =
      connect(connection.get(), target.get(), target.length) == 0 || errno == EINPROGRESS;
  return started ? std::move(connection) : Fd();
}

int connect_result(int socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

bool wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd ready{fd, events, 0};
    const auto left = std::chrono::ceil<Milliseconds>(deadline.left()).count();
    const int count = poll(&ready, 1, static_cast<int>(left));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) throw io_error("poll");
    if (deadline.passed()) return false;
  }
}

}  // namespace horon
