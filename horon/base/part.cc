#include "horon/base/part.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>

#include "horon/base/error.h"
#include "horon/base/version.h"

namespace horon {
namespace {

constexpr std::array<const char*, 5> kKnownParts = {"cuda", "mpi_openmpi", "mpi_mpich", "nccl",
                                                    "train_cuda"};

// Null and a reason in `why` if the file is absent, does not load, or is of another build.
void* open_one(const std::string& path, std::string& why) {
  if (!std::filesystem::exists(path)) {
    why = "not there";
    return nullptr;
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why = dlerror();
    return nullptr;
  }
  using VersionFunction = const char*();
  auto* version = reinterpret_cast<VersionFunction*>(dlsym(handle, "horon_part_version"));
  const std::string found = version == nullptr ? "none" : version();
  if (found == kBuildId) return handle;
  why = fmt::format("built as '{}', this program as '{}'", found, kBuildId);
  dlclose(handle);
  return nullptr;
}

}  // namespace

std::shared_ptr<Part> Part::open(const std::string& name, const std::vector<std::string>& folders) {
  std::vector<std::string> tried;
  for (const std::string& folder : folders) {
    const std::string path = folder + "/libhoron_" + name + ".so";
    std::string why;
    if (void* handle = open_one(path, why)) return std::shared_ptr<Part>(new Part(handle, path));
    tried.push_back(fmt::format("{}: {}", path, why));
  }
  throw UsageError(fmt::format("part '{}' cannot be opened ({})", name, fmt::join(tried, "; ")));
}

// Stays loaded: MPI and CUDA do not survive being unloaded.
Part::~Part() = default;

void* Part::find(const char* symbol) const {
  void* address = dlsym(handle_, symbol);
  if (address == nullptr) throw UsageError(fmt::format("{}: no symbol '{}'", path_, symbol));
  return address;
}

std::vector<std::string> part_folders(const std::string& configured) {
  if (!configured.empty()) return {configured};
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto folder = program.parent_path();
  return {folder.string(), (folder.parent_path() / "lib").string(),
          (folder.parent_path() / "lib" / "horon").string()};
}

std::vector<PartStatus> probe_parts(const std::vector<std::string>& folders) {
  std::vector<PartStatus> all;
  for (const char* name : kKnownParts) {
    PartStatus status{.name = name, .loads = false, .detail = ""};
    try {
      status.detail = Part::open(name, folders)->path();
      status.loads = true;
    } catch (const UsageError& error) {
      status.detail = error.what();
    }
    all.push_back(status);
  }
  return all;
}

}  // namespace horon
