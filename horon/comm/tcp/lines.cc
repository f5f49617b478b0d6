#include "horon/comm/tcp/lines.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "horon/base/error.h"
#include "horon/net/socket.h"

namespace horon::tcp {
namespace {

// Bytes of a frame of a long message. With encryption a record is sealed and opened as a whole, so
// that shorter ones overlap better.
constexpr uint64_t kPlainFrame = Link::kMostBytes;
constexpr uint64_t kPrivateFrame = 128U << 10;
// Bytes that one socket may move before the others are served.
constexpr size_t kTurnBytes = 512U << 10;
// work(true) looks at the door once in so many calls.
constexpr unsigned kLookEvery = 64;

enum Mark : uint64_t { kDoor = 1, kWake = 2 };

bool set_congestion(int socket, const std::string& name) {
  return setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.c_str(),
                    static_cast<socklen_t>(name.size())) == 0;
}

// The driver behind the interface that has this address; "lo" for loopback; empty: unknown.
std::string driver_of(const std::string& address) try {
  if (is_loopback(address)) return "lo";
  for (const InterfaceAddress& entry : interface_addresses()) {
    if (entry.address != address) continue;
    const Fd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ethtool_drvinfo info{};
    info.cmd = ETHTOOL_GDRVINFO;
    ifreq request{};
    std::strncpy(request.ifr_name, entry.interface.c_str(), IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&info);
    if (probe && ioctl(probe.get(), SIOCETHTOOL, &request) == 0) return info.driver;
  }
  return "";
} catch (const IoError&) {  // no more descriptors: the system's choice will do
  return "";
}

}  // namespace

Lines::Lines(const LineOptions& options, Store& store, Events events)
    : options_(options),
      events_(std::move(events)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      door_(options.door, store, [this](Connection&& connection) { add(std::move(connection)); }) {
  if (!epoll_ || !wake_) throw io_error("epoll");
  for (int rank = 0; rank < options.door.size; ++rank) {
    const Inbox::Events incoming{
        .moved = [this](Piece& piece) { events_.moved(piece); },
        .credit = [this, rank](uint64_t flow,
                               uint64_t offset) { peer(rank).out.allow(flow, offset); },
        .leave =
            [this, rank] {
              peer(rank).has_left = true;
              events_.left(rank);
            }};
    peers_.push_back(
        std::make_unique<Peer>(options.is_private ? kPrivateFrame : kPlainFrame, incoming));
    peers_.back()->lines.resize(static_cast<size_t>(options.sockets));
  }
  for (const auto& [fd, mark] : {std::pair{door_.fd(), kDoor}, std::pair{wake_.get(), kWake}}) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = mark}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

Lines::~Lines() = default;

void Lines::find(const std::vector<int>& peers, Deadline deadline) { door_.find(peers, deadline); }

void Lines::call(const std::vector<int>& peers) {
  for (int rank : peers) {
    if (rank >= options_.door.rank || std::exchange(peer(rank).called, true)) continue;
    for (int socket = 0; socket < options_.sockets; ++socket) door_.call(rank, socket);
  }
}

std::string Lines::describe_missing(const std::vector<int>& peers) const {
  return door_.describe_missing(peers);
}

// Loopback and pairs of virtual interfaces lose no packets: algorithms that pace (bbr) only slow
// them down. Elsewhere the system's choice is used.
void Lines::tune(int socket) const {
  const int backlog = static_cast<int>(kTurnBytes);
  setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &backlog, sizeof(backlog));
  if (options_.congestion == "system") return;
  if (options_.congestion != "auto") {
    set_congestion(socket, options_.congestion);  // ignored if not permitted
    return;
  }
  const std::string driver = driver_of(local_endpoint(socket).host);
  if (driver == "lo" || driver == "veth")
    static_cast<void>(set_congestion(socket, "cubic") || set_congestion(socket, "reno"));
}

void Lines::add(Connection&& connection) {
  tune(connection.fd.get());
  const bool is_caller = connection.peer < options_.door.rank;
  std::optional<LinkSecrets> secrets;
  if (options_.is_private) {
    const std::string first = derive_key(connection.secret, "horon wire", "from the caller");
    const std::string second = derive_key(connection.secret, "horon wire", "to the caller");
    secrets = {is_caller ? first : second, is_caller ? second : first, options_.records_per_key};
  }
  auto line = std::make_unique<Line>();
  line->peer = connection.peer;
  line->socket = connection.socket;
  line->link = std::make_unique<Link>(std::move(connection.fd), secrets);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = line.get()}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, line->link->fd(), &event) != 0)
    throw io_error("epoll_ctl");
  Peer& to = peer(line->peer);
  if (static_cast<size_t>(line->socket) >= to.lines.size()) return;
  to.lines[static_cast<size_t>(line->socket)] = line.get();
  to.connected = to.connected || line->socket == 0;
  active_.push_back(line.get());
  has_connected_ = true;
  lines_.push_back(std::move(line));
}

void Lines::post(uint64_t flow, Piece& piece) {
  if (is_abandoned_) return;
  Peer& to = peer(piece.peer);
  if (piece.is_send) return to.out.post(flow, piece);
  to.in.post(flow, piece);
  if (const auto credit = to.in.due_credit(flow)) to.out.credit(flow, *credit);
}

void Lines::flush(int rank) {
  if (is_abandoned_) return;
  for (Line* line : peer(rank).lines) {
    if (line != nullptr && !line->waits_to_send) send(*line);
  }
}

void Lines::close_flow(uint64_t flow) {
  for (const auto& one : peers_) {
    one->out.close(flow);
    one->in.close(flow);
  }
}

void Lines::leave(Deadline deadline) {
  for (int rank = 0; rank < options_.door.size; ++rank) {
    peer(rank).out.leave();
    for (Line* line : peer(rank).lines) {
      if (line != nullptr) send(*line);
    }
  }
  for (const Line* line : active_) shutdown(line->link->fd(), SHUT_WR);
  while (!has_arrived_everywhere() && !deadline.passed()) poll(nullptr, 0, 1);
}

bool Lines::has_arrived_everywhere() {
  return std::all_of(active_.begin(), active_.end(), [](const Line* line) {
    char unread[4096];
    while (recv(line->link->fd(), unread, sizeof(unread), MSG_DONTWAIT) > 0) {
    }
    tcp_info info{};
    socklen_t bytes = sizeof(info);
    const bool is_known = getsockopt(line->link->fd(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0;
    const auto state = info.tcpi_state;  // these: the end of what we sent was acknowledged
    return !is_known || state == TCP_FIN_WAIT2 || state == TCP_TIME_WAIT || state == TCP_CLOSE;
  });
}

void Lines::settle(const Load& load) {
  for (size_t i = 0; i < load.frames.size(); ++i) {
    if (load.pieces[i] == nullptr) continue;
    load.pieces[i]->moved += load.frames[i].header.bytes;
    events_.moved(*load.pieces[i]);
  }
}

void Lines::wait_to_send(Line& line, bool wait) {
  if (line.waits_to_send == wait) return;
  line.waits_to_send = wait;
  epoll_event event{.events = wait ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.ptr = &line}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, line.link->fd(), &event);
}

// Begins one record, or several short ones.
void Lines::begin(Line& line) {
  line.load.clear();
  do {
    peer(line.peer).out.take(next_, line.socket > 0);
    if (next_.frames.empty()) return;
    line.link->begin(next_.frames);
    line.load.append(next_);
  } while (line.link->can_begin());
}

bool Lines::send(Line& line) {
  if (line.is_closed) return false;
  bool moved = false;
  try {
    for (size_t sent = 0; sent < kTurnBytes;) {
      if (!line.link->is_sending()) {
        begin(line);
        if (line.load.frames.empty()) {
          wait_to_send(line, false);
          return moved;
        }
      }
      const uint64_t before = line.link->bytes_written();
      const bool is_out = line.link->send_some();
      moved = moved || line.link->bytes_written() != before;
      if (!is_out) break;
      for (const Frame& frame : line.load.frames) sent += Link::kOverhead + frame.header.bytes;
      settle(line.load);
    }
    const bool has_more = peer(line.peer).out.has_load(line.socket > 0);
    wait_to_send(line, line.link->is_sending() || has_more);
  } catch (const IoError&) {  // receive() reads the remaining data, which may name the reason
    wait_to_send(line, false);
    while (!line.is_closed && receive(line)) moved = true;
    if (!line.is_closed) break_off(line.peer, "");
  }
  return moved;
}

bool Lines::receive(Line& line) {
  if (line.is_closed) return false;
  Peer& from = peer(line.peer);
  try {
    return line.link->receive(from.in, kTurnBytes) > 0;
  } catch (const IoError&) {
    if (line.link->is_at_end()) close(line);  // the peer's other sockets may have unread data
    const bool is_open = std::any_of(from.lines.begin(), from.lines.end(), [](const Line* one) {
      return one != nullptr && !one->is_closed;
    });
    if (!line.is_closed || !is_open) break_off(line.peer, "");
  } catch (const Error& error) {
    break_off(line.peer, error.what());
  }
  return true;
}

void Lines::close(Line& line) {
  line.is_closed = true;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, line.link->fd(), nullptr);
  std::erase(active_, &line);
}

void Lines::break_off(int rank, const std::string& why) {
  Peer& from = peer(rank);
  for (Line* line : from.lines) {
    if (line != nullptr && !line->is_closed) close(*line);
  }
  if (!std::exchange(from.is_broken, true)) events_.broken(rank, why);
}

bool Lines::work(bool everywhere) {
  if (is_abandoned_) return false;
  if (everywhere && ready_count_ == 0 && ++unlooked_ % kLookEvery == 0) sleep(Milliseconds(0));
  bool moved = false;
  if (door_.is_calling()) door_.work();
  for (int i = 0; i < ready_count_; ++i) {
    const epoll_event& event = ready_[static_cast<size_t>(i)];
    if (event.data.u64 == kDoor) {
      door_.work();
    } else if (event.data.u64 == kWake) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
    } else if (!everywhere) {
      Line& line = *static_cast<Line*>(event.data.ptr);
      if ((event.events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) moved = receive(line) || moved;
      for (Line* other : peer(line.peer).lines) {  // a credit is for all of them
        const bool may_send = other == &line || (other != nullptr && !other->waits_to_send);
        if (may_send) moved = send(*other) || moved;
      }
    }
  }
  ready_count_ = 0;
  moved = std::exchange(has_connected_, false) || moved;
  for (size_t i = 0; everywhere && i < active_.size(); ++i) {
    Line& line = *active_[i];
    moved = receive(line) || moved;
    moved = send(line) || moved;
  }
  return moved;
}

void Lines::sleep(Milliseconds most) {
  const int count = epoll_wait(epoll_.get(), ready_.data(), static_cast<int>(ready_.size()),
                               static_cast<int>(most.count()));
  ready_count_ = std::max(count, 0);
}

void Lines::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = write(wake_.get(), &one, sizeof(one));
}

double Lines::seconds_sealing() const {
  double seconds = 0;
  for (const auto& line : lines_) seconds += line->link->seconds_sealing();
  return seconds;
}

}  // namespace horon::tcp
