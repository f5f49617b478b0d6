#include "horon/comm/shared/shm.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/comm/shared/backend.h"
#include "horon/comm/shared/handover.h"
#include "horon/comm/shared/shared_region.h"

namespace horon::shared {
namespace {

// Sleeps until a process of the region ends or the watcher is told to stop.
class Watcher {
 public:
  Watcher(std::weak_ptr<SharedRegion> region, std::vector<Fd> processes)
      : processes_(std::move(processes)),
        wake_(eventfd(0, EFD_CLOEXEC)),
        region_(std::move(region)) {
    if (wake_.get() < 0) throw io_error("eventfd");
    thread_ = start_thread("hrn-watch", [this](const std::stop_token& stop) { run(stop); });
  }
  ~Watcher() {
    if (!process_.is_here()) {  // a forked child: the thread is not here to be joined
      thread_.detach();
      return;
    }
    thread_.request_stop();
    const uint64_t one = 1;
    while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  void run(const std::stop_token& stop) {
    std::vector<pollfd> watched;
    for (const Fd& process : processes_) watched.push_back({process.get(), POLLIN, 0});
    watched.push_back({wake_.get(), POLLIN, 0});
    while (!stop.stop_requested()) {
      if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) return;
      for (size_t rank = 0; rank < processes_.size(); ++rank) {
        if ((watched[rank].revents & POLLIN) == 0) continue;
        watched[rank].fd = -1;  // once is enough
        const auto region = region_.lock();
        if (!region) return;
        if (region->control().left[rank].load() == 0) {
          region->abort({FailureKind::kLost, {region->name_of(static_cast<int>(rank))}});
        }
      }
    }
  }

  std::vector<Fd> processes_;
  Fd wake_;
  std::weak_ptr<SharedRegion> region_;
  OwnProcess process_;
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<Backend> make_shm_backend(const ShmOptions& options, Store& store, const Log& log) {
  require(options.size >= 1 && options.size <= kMaxRanks,
          fmt::format("shm: {} ranks on one host; 1 to {} are possible", options.size, kMaxRanks));
  const uint64_t heap_bytes = std::max<uint64_t>(options.heap_bytes, 1U << 20);
  const RegionLayout layout(options.size, heap_bytes);
  Handover handover = hand_over(
      {.rank = options.rank, .size = options.size, .names = options.names, .bytes = layout.total},
      store, Deadline::after(options.start_timeout));
  struct stat info {};
  if (fstat(handover.memory.get(), &info) != 0) throw io_error("fstat of shared memory");
  require(static_cast<size_t>(info.st_size) == layout.total,
          "shm: rank 0 made a heap of another size; give all ranks the same heap_bytes");
  auto mapping = std::make_shared<Mapping>();
  void* base = mmap(nullptr, layout.total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    handover.memory.get(), 0);
  if (base == MAP_FAILED) throw io_error("mmap of shared memory");
  mapping->base = static_cast<char*>(base);
  mapping->bytes = layout.total;
  mapping->file = handover.memory.release();
  RegionOptions region_options{
      .rank = options.rank, .size = options.size, .heap_bytes = heap_bytes};
  region_options.inline_bytes = std::min(options.inline_bytes, kInlineBytes);
  region_options.spin = spin_time(options.spin, options.size);
  region_options.names = options.names;
  auto region = std::make_shared<SharedRegion>(region_options, std::move(mapping));
  auto watcher = std::make_shared<Watcher>(region, std::move(handover.processes));
  log.debug("shm: {} ranks of this host share memory", options.size);
  return make_shared_backend("shm", std::move(region), std::move(watcher));
}

}  // namespace horon::shared
