#include "horon/train/open.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "horon/base/error.h"
#include "horon/base/version.h"

namespace horon::train {
namespace {

std::string from_env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> places() {
  std::vector<std::string> all;
  if (const std::string given = from_env("HORON_TORCH"); !given.empty()) return {given};
  std::string cache = from_env("HORON_CACHE");
  if (cache.empty() && !from_env("HOME").empty()) cache = from_env("HOME") + "/.cache/horon";
  if (!cache.empty()) all.push_back(fmt::format("{}/libtorch-{}", cache, kTorchVersion));
  return all;
}

// A library that is loaded already is found by its name when the part asks for it.
void load_libtorch() {
  for (const std::string& place : places()) {
    const std::string library = place + "/lib/libtorch_cpu.so";
    if (!std::filesystem::exists(library)) {
      if (!from_env("HORON_TORCH").empty())
        throw UsageError(fmt::format("HORON_TORCH={}: there is no lib/libtorch_cpu.so", place));
      continue;
    }
    if (dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
      throw UsageError(fmt::format("LibTorch cannot be loaded: {}", dlerror()));
    return;
  }
}

}  // namespace

std::shared_ptr<Part> open_trainer(const std::vector<std::string>& part_folders) {
  load_libtorch();
  try {
    return Part::open("train", part_folders);
  } catch (const UsageError& error) {
    if (std::string(error.what()).find("libtorch") == std::string::npos) throw;
    throw UsageError(
        fmt::format("the trainer needs LibTorch {}: install_libtorch.sh (tools/ of the sources, "
                    "share/horon/ of a package) fetches it, or HORON_TORCH=FOLDER names one: {}",
                    kTorchVersion, error.what()));
  }
}

}  // namespace horon::train
