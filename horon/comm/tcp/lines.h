#pragma once

#include <sys/epoll.h>

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/comm/p2p/door.h"
#include "horon/comm/tcp/inbox.h"
#include "horon/comm/tcp/outbox.h"
#include "horon/net/link.h"

namespace horon::tcp {

struct LineOptions {
  DoorOptions door;
  int sockets = 1;  // between two ranks; short messages use the first one only
  bool is_private = true;
  uint64_t records_per_key = LinkSecrets::kRecordsPerKey;
  std::string congestion = "auto";  // algorithm, "system", or "auto"
};

// All connections of one rank. Posts messages to them, and reads and writes as far as the sockets
// allow. Only the constructor, find() and sleep() wait. One thread at a time calls it; sleep() and
// wake() may be called beside. A posted piece belongs to the caller and must live until it is done
// or its flow is closed. Events are called from within work(), post() and flush(). A broken
// connection is reported by `broken`; find() throws TimeoutError.
class Lines {
 public:
  struct Events {
    std::function<void(Piece&)> moved;  // some or all of it was sent or received
    // The connection with this rank was closed (`why` is empty) or received invalid data.
    std::function<void(int peer, const std::string& why)> broken;
    std::function<void(int peer)> left;  // announced that it closes its transport
  };
  // Collective.
  Lines(const LineOptions& options, Store& store, Events events);
  ~Lines();
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  // Reads from the store where these ranks listen; waits until they have published it.
  void find(const std::vector<int>& peers, Deadline deadline);
  // Begins to connect to those of these ranks that have a lower number than this one.
  void call(const std::vector<int>& peers);
  bool is_connected(int peer) const { return peers_[static_cast<size_t>(peer)]->connected; }
  std::string describe_missing(const std::vector<int>& peers) const;

  // Appends the message to the flow; flush() sends what the socket accepts at once.
  void post(uint64_t flow, Piece& piece);
  void flush(int peer);
  void close_flow(uint64_t flow);
  // Announces to all peers that this rank closes its transport; waits until their systems have what
  // was sent, because closing a connection with unread bytes would destroy what is on its way.
  void leave(Deadline deadline);
  // Nothing is sent, received or written to pieces' memory from now on: their owners are gone.
  void abandon() { is_abandoned_ = true; }
  bool is_abandoned() const { return is_abandoned_; }

  // Sends and receives what is possible now, on all sockets if `everywhere`, else on those that
  // sleep() found ready; true if any bytes moved or a connection was made.
  bool work(bool everywhere);
  // True if there are so few sockets that work(true) is faster than asking which are ready.
  bool are_few() const { return active_.size() <= 4; }
  // Connections are being made, and retried every few milliseconds.
  bool is_calling() const { return door_.is_calling(); }
  // Waits until a socket is ready, or wake() is called, at most this long.
  void sleep(Milliseconds most);
  void wake() const;

  double seconds_sealing() const;
  int sockets() const { return static_cast<int>(active_.size()); }

 private:
  struct Line {  // one socket
    std::unique_ptr<Link> link;
    int peer = 0;
    int socket = 0;
    bool waits_to_send = false;
    bool is_closed = false;
    Load load;  // of the records that are being sent
  };
  struct Peer {
    Peer(uint64_t long_frame, Inbox::Events events) : out(long_frame), in(std::move(events)) {}
    Outbox out;
    Inbox in;
    std::vector<Line*> lines;  // by socket; null: not connected
    bool connected = false;    // the first socket is connected
    bool called = false;
    bool has_left = false;
    bool is_broken = false;
  };

  Peer& peer(int rank) { return *peers_[static_cast<size_t>(rank)]; }
  void add(Connection&& connection);
  void tune(int socket) const;
  void begin(Line& line);
  bool send(Line& line);
  bool receive(Line& line);
  void settle(const Load& load);
  void close(Line& line);
  void break_off(int rank, const std::string& why);
  void wait_to_send(Line& line, bool wait);
  bool has_arrived_everywhere();

  LineOptions options_;
  Events events_;
  Fd epoll_;
  Fd wake_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::vector<Line*> active_;
  std::array<epoll_event, 64> ready_{};
  int ready_count_ = 0;
  unsigned unlooked_ = 0;  // calls of work() since the last look at the door
  bool is_abandoned_ = false;
  bool has_connected_ = false;  // since work() last returned
  Load next_;
  Door door_;
};

}  // namespace horon::tcp
