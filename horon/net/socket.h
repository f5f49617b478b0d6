#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/fd.h"
#include "horon/base/time.h"

// TCP as Horon uses it: numeric addresses, keep-alive and user timeouts set, no proxies, never all
// interfaces unless asked for.
namespace horon {

struct Endpoint {
  std::string host;  // name or address, without brackets
  int port = 0;
  bool operator==(const Endpoint&) const = default;
};

// "10.0.0.1:4000", "node7:4000", "[::1]:4000"; UsageError naming the text and what is wrong.
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
// A name of an interface gives its first address (IPv4 first); an address or host name is returned
// as its numeric form. Of several names, separated by commas, the first that this host knows.
// UsageError if it is none of them.
std::string resolve_interface(const std::string& names);
// Numeric addresses of a host, best first; IoError naming the host and the reason.
std::vector<std::string> resolve_host(const std::string& host);
// The local address from which this host reaches `address`, by its routes; empty if there is none.
std::string source_address(const std::string& address);

// A listening socket; port 0: any. A port in use is an IoError (exit code 15) that names its owner.
Fd listen_on(const std::string& address, int port);
Endpoint local_endpoint(int socket);
Endpoint peer_endpoint(int socket);
// Nothing when there is no connection waiting. `busy` is set when descriptors ran out.
Fd accept_from(int listener, bool* busy = nullptr);
// Starts to connect; the socket becomes writable when that ended. Nothing if it failed at once.
Fd start_connect(const std::string& address, int port);
// 0 if the connect succeeded, else errno.
int connect_result(int socket);

// Bounded waiting on one descriptor: false when the deadline passed.
bool wait_for(int fd, short events, Deadline deadline);

}  // namespace horon
