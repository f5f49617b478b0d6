#include "horon/base/part.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "horon/base/error.h"
#include "horon/base/version.h"

// Only in programs that were linked from an installed package: its CMake files add it.
extern "C" [[gnu::weak, gnu::visibility("default")]] const char* horon_parts_folder();

namespace horon {
namespace {

// The file that this code was loaded from, by its real name wherever the process has gone since.
std::filesystem::path own_file() {
  const auto here = reinterpret_cast<uintptr_t>(&own_file);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    int name = 0;
    const bool read =
        std::sscanf(line.c_str(), "%lx-%lx %*s %*s %*s %*s %n", &begin, &end, &name) == 2;
    if (read && begin <= here && here < end) return line.substr(static_cast<size_t>(name));
  }
  return {};
}

constexpr std::array<const char*, 6> kKnownParts = {"cuda",      "gloo", "mpi_openmpi",
                                                    "mpi_mpich", "nccl", "train_cuda"};

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

std::vector<std::string> list_part_folders(const std::filesystem::path& code,
                                           const std::filesystem::path& program,
                                           const std::string& package) {
  std::vector<std::string> folders;
  const auto add = [&](const std::string& folder) {
    if (std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  };
  if (!code.empty() && code != program) {  // a shared library, installed with its parts below it
    add(code.parent_path().string());
    add((code.parent_path() / "horon").string());
  }
  const auto beside = program.parent_path();
  add(beside.string());
  add((beside.parent_path() / "lib").string());
  add((beside.parent_path() / "lib" / "horon").string());
  if (!package.empty()) add(package);
  return folders;
}

std::vector<std::string> part_folders(const std::string& configured) {
  if (!configured.empty()) return {configured};
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return list_part_folders(own_file(), program,
                           horon_parts_folder != nullptr ? horon_parts_folder() : "");
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
