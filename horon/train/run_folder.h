#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "horon/base/time.h"

// The folder of a run: makes a new one, prepares an old one, and lets only one run write to it.
namespace horon::train {

// A new path "runs/20261116T140530Z-MODEL" that does not exist yet.
std::string new_run_folder(const std::string& model);
// Moves what another run left there into before-DATE.
void set_aside(const std::string& folder);
// Removes checkpoints and files whose writers died. Call it only with the lock held.
void remove_leftovers(const std::string& folder);

// Makes this process the only one that writes to a folder, on any host: a file in it names the
// owner and changes every `beat`. An owner is considered dead if its process is gone (same host) or
// its file has not changed for three beats (another host); then the lock is taken over. The
// destructor releases the lock. A thread of its own writes the beats.
class FolderLock {
 public:
  // Blocks until the lock is held. UsageError that names the owner if it is alive. `say` receives
  // the reason if this takes time.
  explicit FolderLock(const std::string& folder,
                      const std::function<void(const std::string&)>& say = {},
                      Milliseconds beat = Milliseconds(5000));
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Error (exit code 13) if another process has taken the lock over.
  void check() const;

 private:
  void take(const std::function<void(const std::string&)>& say);
  bool outlives(const std::string& seen, const std::function<void(const std::string&)>& say) const;
  void keep_beating(const std::stop_token& stop);
  std::string text() const;
  std::string path_;
  std::string owner_;  // unique
  std::string since_;
  Milliseconds beat_;
  uint64_t beats_ = 0;
  std::atomic<bool> lost_ = false;
  std::jthread thread_;
};

}  // namespace horon::train
