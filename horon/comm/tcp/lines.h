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
  int sockets = 1;  // between two ranks; the first one is kept free for short messages
  bool is_private = true;
  uint64_t records_per_key = LinkSecrets::kRecordsPerKey;
  std::string congestion = "auto";  // algorithm, "system", or "auto"
};

// All connections of one rank: posts messages to them, and moves what the sockets take and give.
// Never waits but in find() and sleep(). Callers make sure that one thread at a time is inside;
// sleep() and wake() are the exceptions.
class Lines {
 public:
  struct Events {
    std::function<void(Piece&)> moved;  // some of it went or came, perhaps all
    // The connection with this rank closed, or brought what cannot be: `why`, else empty.
    std::function<void(int peer, const std::string& why)> broken;
    std::function<void(int peer)> left;  // said that it closes its transport
  };
  // Collective.
  Lines(const LineOptions& options, Store& store, Events events);
  ~Lines();
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  // Learns where these ranks listen; waits for them to have said it.
  void find(const std::vector<int>& peers, Deadline deadline);
  // Begins to connect to those of these ranks that are for us to call.
  void call(const std::vector<int>& peers);
  bool is_connected(int peer) const { return peers_[static_cast<size_t>(peer)]->connected; }
  std::string describe_missing(const std::vector<int>& peers) const;

  // Puts the message into its stream, in order; what the socket takes at once is sent by flush().
  void post(uint64_t stream, Piece& piece);
  void flush(int peer);
  void close_stream(uint64_t stream);
  // Tells all peers that we leave; waits until their systems have what was sent, because closing a
  // connection with unread bytes would destroy what is still on its way.
  void leave(Deadline deadline);
  // Nothing is sent, received or written to pieces' memory from now on: their owners are gone.
  void abandon() { is_abandoned_ = true; }
  bool is_abandoned() const { return is_abandoned_; }

  // Moves what can be moved now, looking at all sockets if `everywhere`, else only at those that
  // sleep() found ready; true if anything moved or a connection was made.
  bool work(bool everywhere);
  // Few enough that work(true) is faster than asking which are ready.
  bool are_few() const { return active_.size() <= 4; }
  // Connections are being made, and retried every few milliseconds.
  bool is_calling() const { return door_.is_calling(); }
  // Until something can be moved, or somebody calls wake(). Thread-safe against all but itself.
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
    bool connected = false;    // the first socket is there
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
