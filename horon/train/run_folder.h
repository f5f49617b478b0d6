#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "horon/base/time.h"

// The folder of a run: a new one, an old one made ready, and that only one run writes there.
namespace horon::train {

// "runs/20261116T140530Z-MODEL", one that is not there yet.
std::string new_run_folder(const std::string& model);
// What another run left there is moved into before-DATE.
void set_aside(const std::string& folder);
// Checkpoints and files whose writers died. For whoever holds the lock.
void remove_leftovers(const std::string& folder);

// Makes this process the only one that writes into a folder, wherever it is: a file there names the
// owner and changes every `beat`. Another owner whose process is gone (on this host), or whose file
// has not changed for three beats (on another), is taken to be dead, and the folder taken over.
class FolderLock {
 public:
  // UsageError that names the owner, if it is alive. `say` hears why it takes time.
  explicit FolderLock(const std::string& folder,
                      const std::function<void(const std::string&)>& say = {},
                      Milliseconds beat = Milliseconds(5000));
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Error (exit code 13) if somebody else has taken the folder over meanwhile.
  void check() const;

 private:
  void take(const std::function<void(const std::string&)>& say);
  bool outlives(const std::string& seen, const std::function<void(const std::string&)>& say) const;
  void keep_beating(const std::stop_token& stop);
  std::string text() const;
  std::string path_;
  std::string owner_;  // unlike any other
  std::string since_;
  Milliseconds beat_;
  uint64_t beats_ = 0;
  std::atomic<bool> lost_ = false;
  std::jthread thread_;
};

}  // namespace horon::train
