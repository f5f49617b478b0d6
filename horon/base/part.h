#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

// Parts: heavy pieces (MPI, NCCL, CUDA, the trainer) as shared libraries that are opened by name
// when asked for. An absent or broken one is an absent feature with a reason, never a crash.
namespace horon {

// Every part exports `extern "C" const char* horon_part_version()`; a part of another build is
// refused, because C++ objects cross the boundary.
class Part {
 public:
  // Looks for libhoron_<name>.so in `folders`, in order. Throws UsageError with every place tried
  // and what the loader said.
  static std::shared_ptr<Part> open(const std::string& name,
                                    const std::vector<std::string>& folders);
  ~Part();
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const std::string& path() const { return path_; }
  // The function exported under `symbol`; throws UsageError if there is none.
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

// Where parts are looked for: `configured` if given; else beside the shared library that this code
// is in, if it is in one, beside the program, in its ../lib and ../lib/horon, and where the package
// lies that the program was linked from.
std::vector<std::string> part_folders(const std::string& configured);

// The same without a look around. Pure. `code`: the file that this code was loaded from;
// `package`: empty if there is none.
std::vector<std::string> list_part_folders(const std::filesystem::path& code,
                                           const std::filesystem::path& program,
                                           const std::string& package);

struct PartStatus {
  std::string name;
  bool loads = false;
  std::string detail;  // path, or the reason why it did not load
};

// Tries to open each known part, for `horon info`.
std::vector<PartStatus> probe_parts(const std::vector<std::string>& folders);

}  // namespace horon
