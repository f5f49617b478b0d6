#include "horon/train/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/file/file.h"

namespace horon::train {
namespace {

constexpr const char* kLock = "run.lock";
constexpr uint64_t kMostBytes = 64U << 10;
constexpr int kBeats = 3;  // missed beats after which the owner counts as dead

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Where process numbers mean the same: this boot of this machine, this container.
std::string place_of_pids() {
  std::error_code error;
  return first_line("/proc/sys/kernel/random/boot_id") + " " +
         std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

// When a process began, in ticks since the boot: tells it from a later one with its number. Empty:
// there is none.
std::string start_of(int64_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = line.rfind(')');  // the name may contain any character
  if (name_end == std::string::npos) return "";
  std::istringstream words(line.substr(name_end + 1));
  std::string word;
  for (int i = 3; i <= 22; ++i) words >> word;  // field 3 follows the name
  return word;
}

std::string read_lock(const std::string& path) {
  try {
    return file::read(path, kMostBytes);
  } catch (const IoError&) {  // it has just gone
    return "";
  }
}

nlohmann::json parse(const std::string& text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_object() ? json : nlohmann::json::object();
}

std::string describe(const nlohmann::json& owner) {
  return fmt::format("host {}, process {}, since {}", owner.value("host", "?"),
                     owner.value("pid", int64_t{0}), owner.value("since", "?"));
}

}  // namespace

std::string new_run_folder(const std::string& model) {
  std::string stamp = utc_now();
  std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
  std::string folder = fmt::format("runs/{}-{}", stamp, model);
  for (int again = 2; file::exists(folder); ++again)
    folder = fmt::format("runs/{}-{}-{}", stamp, model, again);
  return folder;
}

void set_aside(const std::string& folder) {
  std::vector<std::string> old;
  for (const file::FileInfo& entry : file::list(folder)) {
    const std::string name = file::base_name(entry.path);
    if (name.starts_with("ckpt-") || name == "best" || name == "log.jsonl" || name == "config.json")
      old.push_back(name);
  }
  if (old.empty()) return;
  std::string aside = file::join_path(folder, "before-" + utc_now());
  while (file::exists(aside)) aside += "-again";
  file::make_folder(aside);
  for (const std::string& name : old)
    file::rename(file::join_path(folder, name), file::join_path(aside, name));
}

void remove_leftovers(const std::string& folder) {
  if (!file::exists(folder)) return;
  file::remove_unfinished(folder);
  for (const file::FileInfo& entry : file::list(folder)) {
    const std::string name = file::base_name(entry.path);
    if (entry.is_folder && name.starts_with("ckpt-") && name.ends_with(".part"))
      file::remove_tree(entry.path);
  }
}

FolderLock::FolderLock(const std::string& folder,
                       const std::function<void(const std::string&)>& say, Milliseconds beat)
    : path_(file::join_path(folder, kLock)), since_(utc_now()), beat_(beat) {
  std::random_device random;
  owner_ = fmt::format("{:08x}{:08x}", random(), random());
  take(say);
  thread_ = start_thread("hrn-lock", [this](const std::stop_token& stop) { keep_beating(stop); });
}

FolderLock::~FolderLock() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  try {
    if (!lost_ && parse(read_lock(path_)).value("owner", "") == owner_) file::remove(path_);
  } catch (const Error&) {  // the next run sees that its owner is gone
  }
}

void FolderLock::check() const {
  if (lost_)
    throw Error(fmt::format("another run has taken this folder over ({}): {}", path_,
                            describe(parse(read_lock(path_)))),
                ExitCode::kCheckpoint);
}

std::string FolderLock::text() const {
  return nlohmann::json{{"owner", owner_},
                        {"host", host_name()},
                        {"pid", getpid()},
                        {"started", start_of(getpid())},
                        {"place", place_of_pids()},
                        {"since", since_},
                        {"beat", beats_}}
             .dump() +
         "\n";
}

void FolderLock::take(const std::function<void(const std::string&)>& say) {
  while (!file::write_new(path_, text())) {
    const std::string seen = read_lock(path_);
    if (seen.empty()) continue;  // it has just gone
    if (outlives(seen, say))
      throw UsageError(
          fmt::format("{} is written by another run: {}; end it, or give another --model_dir",
                      path_.substr(0, path_.rfind('/')), describe(parse(seen))));
    if (read_lock(path_) == seen) file::remove(path_);
  }
}

// On this host the process is looked for; elsewhere its file is watched.
bool FolderLock::outlives(const std::string& seen,
                          const std::function<void(const std::string&)>& say) const {
  const nlohmann::json owner = parse(seen);
  if (owner.value("place", "") == place_of_pids()) {
    const std::string started = start_of(owner.value("pid", int64_t{0}));
    return !started.empty() && started == owner.value("started", "");
  }
  if (say)
    say(fmt::format("{} was left by {}: waiting {} to see whether it is alive", path_,
                    describe(owner), format_duration(kBeats * beat_)));
  const Deadline deadline = Deadline::after(kBeats * beat_);
  while (!deadline.passed()) {
    std::this_thread::sleep_for(deadline.left(beat_ / 4));
    if (const std::string now = read_lock(path_); now != seen) return !now.empty();
  }
  return false;
}

void FolderLock::keep_beating(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, stop, beat_, [&] { return stop.stop_requested(); })) {
    try {
      const std::string seen = read_lock(path_);
      if (!seen.empty() && parse(seen).value("owner", "") != owner_) {
        lost_ = true;
        return;
      }
      ++beats_;
      file::write(path_, text());
    } catch (const Error&) {  // the disk may be full temporarily
    }
  }
}

}  // namespace horon::train
