#include "horon/bench/all_reduce_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"
#include "horon/bench/all_reduce.h"
#include "horon/bench/raw_peer.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/mpi/mpi_part.h"
#include "horon/runtime/session.h"

namespace horon::bench {
namespace {

// Buffers are rotated until all of them together are this large: beyond any last-level cache.
constexpr uint64_t kFootprint = 640U << 20;
constexpr uint64_t kRotateFrom =
    1U << 20;  // smaller messages measure latency: their buffers stay in cache

// Vectorised as far as the CPU goes, as our kernels are.
__attribute__((target_clones("avx512f", "avx2", "default"))) void add_one(float* data,
                                                                          uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) data[i] += 1.0F;
}

// One way to all-reduce.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual bool wants_heap() const { return false; }
  virtual void run(const BufferView& data) = 0;
};

class Floor final : public Contender {
 public:
  void run(const BufferView& data) override {
    add_one(static_cast<float*>(data.data), data.bytes() / 4);
  }
};

class Ours final : public Contender {
 public:
  Ours(std::shared_ptr<Communicator> comm, bool heap, ReduceOptions options = {})
      : heap_(heap), options_(std::move(options)), comm_(std::move(comm)) {}
  bool wants_heap() const override { return heap_; }
  void run(const BufferView& data) override { comm_->all_reduce(data, options_); }

 private:
  bool heap_;
  ReduceOptions options_;
  std::shared_ptr<Communicator> comm_;
};

// The same bytes as another type.
class OfType final : public Contender {
 public:
  OfType(std::shared_ptr<Communicator> comm, DType dtype) : dtype_(dtype), comm_(std::move(comm)) {}
  bool wants_heap() const override { return true; }
  void run(const BufferView& data) override {
    comm_->all_reduce({data.data, data.bytes() / size_of(dtype_), dtype_, {}});
  }

 private:
  DType dtype_;
  std::shared_ptr<Communicator> comm_;
};

class Raw final : public Contender {
 public:
  explicit Raw(std::unique_ptr<RawPeer> peer) : peer_(std::move(peer)) {}
  void run(const BufferView& data) override {
    peer_->all_reduce(static_cast<float*>(data.data), data.count);
  }

 private:
  std::unique_ptr<RawPeer> peer_;
};

std::shared_ptr<Communicator> connect(const BootstrapInfo& info, const std::string& backend,
                                      bool is_one_host) {
  BootstrapInfo mine = info;
  mine.name = "bench-" + backend;
  const bool is_plain = backend == "tcp_plain";
  const std::string known = is_plain ? "tcp" : backend == "mpi_tcp" ? "mpi" : backend;
  mine.job_settings.set("backend", known, "bench");
  if (is_plain) mine.job_settings.set("wire", "plain", "bench");
  if (backend == "hier" && is_one_host)  // pretends to be two
    mine.job_settings.set("host_id", fmt::format("half{}", info.rank % 2), "bench");
  return make_communicator(mine);
}

std::unique_ptr<Contender> make_contender(const std::string& name, const BootstrapInfo& info,
                                          const std::shared_ptr<Communicator>& shm,
                                          bool is_one_host) {
  if (name == "floor") return std::make_unique<Floor>();
  if (name == "shm") return std::make_unique<Ours>(shm, true);
  if (name == "exact")
    return std::make_unique<Ours>(shm, true, ReduceOptions{.reduction = Reduction::kExact});
  if (name == "shm_max")
    return std::make_unique<Ours>(shm, true, ReduceOptions{.op = ReduceOp::kMax});
  if (name == "shm_f16") return std::make_unique<OfType>(shm, DType::kF16);
  if (name == "shm_bf16") return std::make_unique<OfType>(shm, DType::kBF16);
  if (name == "shm_plain") return std::make_unique<Ours>(shm, false);
  if (name == "raw_gloo") {
    return std::make_unique<Raw>(make_raw_gloo(info.rank, info.size,
                                               make_prefix_store(info.store, "raw/"),
                                               part_folders(info.job_settings.text("parts"))));
  }
  if (name == "raw_mpi" || name == "raw_mpi_tcp") {
    return std::make_unique<Raw>(make_raw_mpi(part_folders(info.job_settings.text("parts"))));
  }
  return std::make_unique<Ours>(connect(info, name, is_one_host), false);
}

// Memory for all sizes and contenders: one piece on the heap of shm, one beside it.
struct Arena {
  Arena(Communicator& shm, uint64_t bytes)
      : heap(shm.allocate(bytes, DType::kU8)), plain(OwnedBuffer::host(bytes, DType::kU8)) {
    // A normal number in f32, f16 and bf16.
    for (const OwnedBuffer* one : {&heap, &plain})
      std::fill_n(one->as<uint8_t>().data(), bytes, uint8_t{0x3f});
  }
  BufferView slice(bool on_heap, uint64_t at, uint64_t count, DType dtype) const {
    return {(on_heap ? heap : plain).as<uint8_t>().data() + at, count, dtype, {}};
  }
  OwnedBuffer heap;
  OwnedBuffer plain;
};

double percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(
      std::lround(fraction * static_cast<double>(values.size() - 1)))];
}

// Measures all contenders at one size, in rounds that take turns.
class SizeRun {
 public:
  SizeRun(const BenchPlan& plan, uint64_t bytes, Communicator& sync, const Arena& arena)
      : plan_(plan), bytes_(bytes), dtype_(parse_dtype(plan.dtype)), sync_(sync), arena_(arena) {
    count_ = std::max<uint64_t>(bytes / size_of(dtype_), 1);
    copies_ = bytes >= kRotateFrom ? std::max<uint64_t>(kFootprint / bytes, 2) : 1;
    // Small operations are timed several at a time; a clock read costs 25 ns, a barrier
    // microseconds.
    batch_ = bytes <= (64U << 10) ? 16 : bytes < kRotateFrom ? 4 : 1;
  }

  std::vector<BenchPoint> run(
      std::vector<std::pair<std::string, std::unique_ptr<Contender>>>& contenders) {
    map_pages(contenders);
    std::vector<std::vector<double>> times(contenders.size());
    const Stopwatch watch;
    uint64_t turn = 0;  // each measurement takes the next buffer, so none is in cache
    for (int round = 0; round < plan_.max_rounds + kWarmUp; ++round) {
      for (size_t k = 0; k < contenders.size(); ++k) {
        const size_t c = (k + static_cast<size_t>(round)) % contenders.size();
        const double time = measure(*contenders[c].second, turn++);
        if (round >= kWarmUp) times[c].push_back(time);
      }
      // All ranks stop after the same round: rank 0's clock decides.
      std::vector<uint8_t> goes_on = {
          static_cast<uint8_t>(watch.seconds() < plan_.seconds || round < kWarmUp + 4)};
      sync_.broadcast(view_of(goes_on), 0);
      if (goes_on[0] == 0) break;
    }
    return points(contenders, times);
  }

 private:
  static constexpr int kWarmUp = 2;

  // A peer's pages come into this process when it first touches them, sixteen in some 4 us.
  // Gradients live in the same buffers for the whole training, so that is over before the clock
  // runs.
  void map_pages(std::vector<std::pair<std::string, std::unique_ptr<Contender>>>& contenders) {
    const auto first = std::find_if(contenders.begin(), contenders.end(),
                                    [](const auto& one) { return one.second->wants_heap(); });
    if (first == contenders.end()) return;
    for (uint64_t copy = 0; copy < copies_; ++copy)
      first->second->run(arena_.slice(true, copy * bytes_, count_, dtype_));
  }

  // Microseconds per operation, on the slowest rank.
  double measure(Contender& contender, uint64_t turn) {
    const BufferView data =
        arena_.slice(contender.wants_heap(), turn % copies_ * bytes_, count_, dtype_);
    sync_.barrier();
    const Stopwatch watch;
    for (int i = 0; i < batch_; ++i) contender.run(data);
    std::vector<double> time = {watch.seconds() * 1e6 / batch_};
    sync_.all_reduce(view_of(time), {.op = ReduceOp::kMax});
    return time[0];
  }

  std::vector<BenchPoint> points(
      const std::vector<std::pair<std::string, std::unique_ptr<Contender>>>& contenders,
      const std::vector<std::vector<double>>& times) const {
    std::vector<BenchPoint> all;
    double floor = 0;
    for (size_t c = 0; c < contenders.size(); ++c) {
      BenchPoint point;
      point.ranks = sync_.size();
      point.bytes = bytes_;
      point.contender = contenders[c].first;
      point.median_us = percentile(times[c], 0.5);
      point.p95_us = percentile(times[c], 0.95);
      point.gb_per_s = static_cast<double>(bytes_) / point.median_us * 1e-3;
      point.rounds = static_cast<int>(times[c].size());
      if (point.contender == "floor") floor = point.median_us;
      all.push_back(point);
    }
    for (BenchPoint& point : all) point.share_of_floor = floor / point.median_us;
    return all;
  }

  const BenchPlan& plan_;
  uint64_t bytes_;
  DType dtype_;
  Communicator& sync_;
  const Arena& arena_;
  uint64_t count_;
  uint64_t copies_;
  int batch_;
};

// What a rank measures, and the communicator that connects the ranks meanwhile.
struct Setup {
  BootstrapInfo info;
  BenchPlan plan;
  std::shared_ptr<Communicator> sync;
};

Setup set_up_here(const RankOptions& options) {
  Setup setup;
  BootstrapInfo& info = setup.info;
  info.job_settings =
      JobSettings::resolve({}, process_env, process_env("HORON_CONFIG").value_or(""));
  info.rank = options.rank;
  info.size = options.size;
  info.store = make_file_store(options.store);
  if (options.rank < 0) {
    const MpiIdentity world =
        mpi_identity({.part_folders = part_folders(info.job_settings.text("parts"))});
    info.rank = world.rank;
  }
  const Deadline soon = Deadline::after(info.job_settings.duration("start_timeout"));
  setup.plan = nlohmann::json::parse(info.store->get("plan", soon)).get<BenchPlan>();
  const auto& contenders = setup.plan.contenders;
  BootstrapInfo beside = info;  // if shm is not measured, it only connects the ranks
  if (std::none_of(contenders.begin(), contenders.end(), [](const std::string& name) {
        return name == "exact" || name.rfind("shm", 0) == 0;
      }))
    beside.job_settings.set("algorithm", "", "bench");
  setup.sync = connect(beside, "shm", true);
  return setup;
}

// On several hosts: a session enters the job.
Setup set_up_on_hosts(const RankOptions& options) {
  const auto session = std::make_shared<Session>();
  Setup setup;
  setup.info.rank = session->rank();
  setup.info.size = session->size();
  setup.info.store = session->store();
  setup.info.job_settings = session->job_settings();
  setup.plan = nlohmann::json::parse(options.plan).get<BenchPlan>();
  setup.sync = {session, &session->world()};
  return setup;
}

}  // namespace

std::vector<std::string> contender_names() {
  return {"floor",   "shm",      "shm_plain",   "exact",  "shm_f16", "shm_bf16",
          "shm_max", "tcp",      "tcp_plain",   "gloo",   "hier",    "mpi",
          "raw_mpi", "raw_gloo", "raw_mpi_tcp", "mpi_tcp"};
}

void run_all_reduce_rank(const RankOptions& options) {
  const Setup setup = options.plan.empty() ? set_up_here(options) : set_up_on_hosts(options);
  const auto& [info, plan, sync] = setup;
  std::vector<std::pair<std::string, std::unique_ptr<Contender>>> contenders;
  for (const std::string& name : plan.contenders)
    contenders.emplace_back(name, make_contender(name, info, sync, plan.is_one_host));
  // Bound after the libraries have started their threads: only the measuring thread gets a
  // core.
  const std::vector<int> cores = usable_cores();
  if (static_cast<size_t>(info.size) <= cores.size())
    pin_to_core(cores[static_cast<size_t>(info.rank)]);
  const uint64_t largest = *std::max_element(plan.sizes.begin(), plan.sizes.end());
  const Arena arena(*sync,
                    std::max<uint64_t>(largest >= kRotateFrom ? kFootprint : 0, 2 * largest) + 64);
  std::vector<BenchPoint> points;
  for (size_t i = 0; i < plan.sizes.size(); ++i) {
    if (plan.shows_progress && info.rank == 0) {
      std::cerr << fmt::format("\r{} ranks: {:>8}  [{:<{}}]", info.size,
                               format_bytes(plan.sizes[i]), std::string(i + 1, '#'),
                               plan.sizes.size())
                << std::flush;
    }
    for (const BenchPoint& point : SizeRun(plan, plan.sizes[i], *sync, arena).run(contenders))
      points.push_back(point);
  }
  if (plan.shows_progress && info.rank == 0) std::cerr << "\r" << std::string(60, ' ') << "\r";
  const std::string result = nlohmann::json(points).dump();
  if (info.rank == 0 && plan.is_one_host)
    info.store->set("result", result, Deadline::after(std::chrono::seconds(10)));
  if (info.rank == 0 && !plan.is_one_host) std::cout << result << std::endl;
  sync->barrier();
}

}  // namespace horon::bench
