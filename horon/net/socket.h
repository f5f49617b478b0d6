#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/fd.h"
#include "horon/base/time.h"

// TCP with numeric addresses, keep-alive and user timeouts, no proxies. Never listens on all
// interfaces unless requested.
namespace horon {

// A host and a port.
struct Endpoint {
  std::string host;  // name or address, without brackets
  int port = 0;
  bool operator==(const Endpoint&) const = default;
};

// Parses "10.0.0.1:4000", "node7:4000", "[::1]:4000"; UsageError with the text and the reason.
Endpoint parse_endpoint(std::string_view text);
// Several, separated by commas.
std::vector<Endpoint> parse_endpoints(std::string_view text);
std::string format_endpoint(const Endpoint& endpoint);
std::string format_endpoints(const std::vector<Endpoint>& endpoints);

bool is_loopback(const std::string& address);

// The addresses of this host's interfaces that are up.
struct InterfaceAddress {
  std::string interface;
  std::string address;
};
std::vector<InterfaceAddress> interface_addresses();
// Resolves an interface name to its first address (IPv4 first), and an address or host name to its
// numeric form. Of several names separated by commas the first known on this host is used.
// UsageError if there is none.
std::string resolve_interface(const std::string& names);
// Numeric addresses of a host, best first; IoError naming the host and the reason.
std::vector<std::string> resolve_host(const std::string& host);
// The local address that the routing table selects for `address`; empty if there is none.
std::string source_address(const std::string& address);

// A listening socket; port 0: any. If the port is in use, IoError (exit code 15) names its owner.
Fd listen_on(const std::string& address, int port);
Endpoint local_endpoint(int socket);
Endpoint peer_endpoint(int socket);
// Empty if no connection is waiting. `busy` is set if the process is out of descriptors.
Fd accept_from(int listener, bool* busy = nullptr);
// Starts to connect; the socket becomes writable when the attempt ends. Empty if it failed
// immediately.
Fd start_connect(const std::string& address, int port);
// 0 if the connect succeeded, else errno.
int connect_result(int socket);

// Waits for events on one descriptor; false if the deadline passed.
bool wait_for(int fd, short events, Deadline deadline);

}  // namespace horon
