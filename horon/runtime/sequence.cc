#include "horon/runtime/sequence.h"

#include "horon/runtime/lane.h"

namespace horon {

Sequence::Sequence(std::unique_ptr<Communicator> comm, Mover::Options mover, Ledger::Options ledger)
    : ledger_(std::move(ledger)),
      comm_(std::move(comm)),
      mover_(*comm_, std::move(mover)),
      queue_("hrn-unnamed") {
  ledger_.watch(*comm_);
}

Sequence::~Sequence() {
  if (!queue_.close(Deadline::after(Lane::kFarewell))) comm_->leave();
}

Work Sequence::start(TensorSpec spec, Request request, std::optional<uint64_t> step) {
  return queue_.submit([this, spec = std::move(spec), request = std::move(request), step] {
    move(spec, request, step);
  });
}

void Sequence::run(const TensorSpec& spec, const Request& request, std::optional<uint64_t> step) {
  queue_.run([&] { move(spec, request, step); });
}

int Sequence::join() { return comm_->join({.name = "join", .timeout = kNoLimit}); }

void Sequence::move(const TensorSpec& spec, Request request, std::optional<uint64_t> step) {
  std::vector<Segment> segments;
  if (!spec.codec.empty()) segments.push_back({spec.name, 0, request.in.count, step});
  if (request.ready) request.ready();
  const auto done = request.done;
  mover_.move(std::move(request), spec, std::move(segments), false);
  if (done) done();
}

}  // namespace horon
