#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

// Parts: large dependencies (MPI, NCCL, CUDA, the trainer) as shared libraries that are opened by
// name on demand. A missing or broken part is a missing feature with a reason, never a crash.
namespace horon {

// An open part. Every part exports `extern "C" const char* horon_part_version()`; a part from
// another build is refused, because C++ objects cross the boundary. Thread-safe. Never unloaded.
class Part {
 public:
  // Searches libhoron_<name>.so in `folders`, in order. Throws UsageError with every path tried and
  // the loader's message.
  static std::shared_ptr<Part> open(const std::string& name,
                                    const std::vector<std::string>& folders);
  ~Part();
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const std::string& path() const { return path_; }
  // The function exported as `symbol`; throws UsageError if there is none.
  template <typename Function>
  Function* function(const char* symbol) const {
    return reinterpret_cast<Function*>(find(symbol));
  }

 private:
  Part(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* find(const char* symbol) const;
  void* handle_;
  std::string path_;
};

// The folders to search for parts: `configured` if given; otherwise beside the shared library that
// contains this code (if it is in one), beside the program, in its ../lib and ../lib/horon, and in
// the package that the program was linked from.
std::vector<std::string> part_folders(const std::string& configured);

// The same as a pure function. `code`: the file that this code was loaded from; `package`: empty if
// there is none.
std::vector<std::string> list_part_folders(const std::filesystem::path& code,
                                           const std::filesystem::path& program,
                                           const std::string& package);

// One line of `horon info` about a part.
struct PartStatus {
  std::string name;
  bool loads = false;
  std::string detail;  // path, or why it did not load
};

// Tries to open each known part; for `horon info`.
std::vector<PartStatus> probe_parts(const std::vector<std::string>& folders);

}  // namespace horon
