#include "horon/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/base/failpoint.h"
#include "horon/base/text.h"
#include "horon/base/time.h"
#include "horon/file/digest.h"
#include "horon/file/file.h"

namespace horon::train {
namespace {

constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kCodec = "codec.safetensors";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kPrefix = "ckpt-";
constexpr uint64_t kMostBytes = uint64_t{64} << 30;

nlohmann::json write_part(const std::string& folder, const char* name, const TensorMap& tensors) {
  const std::string path = file::join_path(folder, name);
  failpoint("before_file");
  file::write(path, pack_safetensors(tensors));
  failpoint("after_file");
  return {{"bytes", file::stat(path)->bytes}, {"sha256", file::digest_of(path, "sha256")}};
}

// Of everything else in it.
uint32_t checksum_of(const nlohmann::json& manifest) {
  const std::string text = manifest.dump();
  return crc32c(text.data(), text.size());
}

TensorMap read_part(const std::string& folder, const char* name, const nlohmann::json& manifest) {
  const std::string path = file::join_path(folder, name);
  const auto info = file::stat(path);
  const nlohmann::json& entry = manifest.at("files").at(name);
  if (!info) throw Error(path + ": it is not there", ExitCode::kCheckpoint);
  if (info->bytes != entry.at("bytes").get<uint64_t>())
    throw Error(
        fmt::format("{}: {} bytes instead of {}", path, info->bytes, entry.at("bytes").dump()),
        ExitCode::kCheckpoint);
  if (file::digest_of(path, "sha256") != entry.at("sha256").get<std::string>())
    throw Error(path + ": its checksum is wrong", ExitCode::kCheckpoint);
  return unpack_safetensors(file::read(path, kMostBytes), path);
}

using CodecStates = std::map<std::string, std::string>;

TensorMap tensors_of(const std::vector<CodecStates>& states) {
  TensorMap tensors;
  for (size_t rank = 0; rank < states.size(); ++rank) {
    for (const auto& [name, bytes] : states[rank])
      tensors[fmt::format("{}/{}", rank, name)] = {"U8", {bytes.size()}, bytes};
  }
  return tensors;
}

std::vector<CodecStates> states_of(TensorMap tensors, int ranks) {
  std::vector<CodecStates> states(static_cast<size_t>(std::max(ranks, 0)));
  for (auto& [name, tensor] : tensors) {
    const size_t slash = std::min(name.find('/'), name.size() - 1);
    const auto rank = parse_number(name.substr(0, slash));
    if (!rank || *rank < 0 || *rank >= ranks)
      throw Error(fmt::format("{}: '{}' is of none of {} ranks", kCodec, name, ranks),
                  ExitCode::kCheckpoint);
    states[static_cast<size_t>(*rank)][name.substr(slash + 1)] = std::move(tensor.bytes);
  }
  return states;
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, uint64_t keep)
    : folder_(std::move(folder)), keep_(keep == 0 ? std::numeric_limits<uint64_t>::max() : keep) {}

CheckpointStore::~CheckpointStore() {
  if (writer_.joinable()) writer_.join();
}

std::string CheckpointStore::path_of(uint64_t step) const {
  return file::join_path(folder_, fmt::format("{}{:08}", kPrefix, step));
}

void CheckpointStore::save(const Snapshot& snapshot) {
  const std::string fresh = path_of(snapshot.step) + ".part";
  try {
    write(snapshot, fresh);
  } catch (const Error&) {  // an incomplete checkpoint only takes space
    if (file::exists(fresh)) file::remove_tree(fresh);
    throw;
  }
}

// Every file is on disk, with its name, when file::write returns.
void CheckpointStore::write(const Snapshot& snapshot, const std::string& fresh) {
  const std::string target = path_of(snapshot.step);
  failpoint("before_folder");
  if (file::exists(fresh)) file::remove_tree(fresh);
  file::make_folder(fresh);
  nlohmann::json files;
  files[kModel] = write_part(fresh, kModel, snapshot.model);
  files[kOptimizer] = write_part(fresh, kOptimizer, snapshot.optimizer);
  const TensorMap codec = tensors_of(snapshot.codec_states);
  if (!codec.empty()) files[kCodec] = write_part(fresh, kCodec, codec);
  nlohmann::json manifest = {{"format", 1},
                             {"step", snapshot.step},
                             {"epoch", snapshot.position.epoch},
                             {"next", snapshot.position.next},
                             {"files", files},
                             {"config", to_json(snapshot.config)},
                             {"ranks", snapshot.ranks},
                             {"best_accuracy", snapshot.best_accuracy},
                             {"optimizer_steps", snapshot.optimizer_steps},
                             {"data_samples", snapshot.data.samples},
                             {"data_digest", snapshot.data.digest},
                             {"date", utc_now()}};
  manifest["checksum"] = checksum_of(manifest);
  failpoint("before_manifest");
  file::write(file::join_path(fresh, kManifest), manifest.dump(1) + "\n");
  failpoint("after_manifest");
  if (file::exists(target)) file::remove_tree(target);
  failpoint("before_rename");
  file::rename(fresh, target);  // and the folder above is synced
  failpoint("after_rename");
  std::vector<uint64_t> others = steps();  // without the one that was just written
  std::erase(others, snapshot.step);
  while (others.size() >= keep_ && !others.empty()) {
    failpoint("before_remove");
    file::remove_tree(path_of(others.front()));
    others.erase(others.begin());
  }
}

void CheckpointStore::save_later(Snapshot snapshot) {
  finish();
  writer_ = std::jthread([this, kept = std::move(snapshot)] {
    try {
      save(kept);
    } catch (...) {
      failed_ = std::current_exception();
    }
  });
}

void CheckpointStore::finish() {
  if (writer_.joinable()) writer_.join();
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
}

std::vector<uint64_t> CheckpointStore::steps() const {
  std::vector<uint64_t> found;
  if (!file::exists(folder_)) return found;
  for (const file::FileInfo& entry : file::list(folder_)) {
    const std::string name = file::base_name(entry.path);
    if (!entry.is_folder || !name.starts_with(kPrefix)) continue;
    const auto number = parse_number(name.substr(std::string(kPrefix).size()));
    if (number && *number >= 0) found.push_back(static_cast<uint64_t>(*number));
  }
  std::sort(found.begin(), found.end());
  return found;
}

Snapshot CheckpointStore::load(const std::string& checkpoint) {
  const std::string path = file::join_path(checkpoint, kManifest);
  try {
    auto manifest = nlohmann::json::parse(file::read(path, 16U << 20));
    const auto checksum = manifest.at("checksum").get<uint32_t>();
    manifest.erase("checksum");
    if (checksum != checksum_of(manifest))
      throw Error(path + ": its checksum is wrong", ExitCode::kCheckpoint);

    Snapshot snapshot;
    snapshot.step = manifest.at("step").get<uint64_t>();
    snapshot.position = {manifest.at("epoch").get<uint64_t>(), manifest.at("next").get<uint64_t>()};
    snapshot.config = config_from_json(manifest.at("config"));
    snapshot.ranks = manifest.at("ranks").get<int>();
    snapshot.best_accuracy = manifest.at("best_accuracy").get<double>();
    snapshot.optimizer_steps = manifest.at("optimizer_steps").get<uint64_t>();
    snapshot.data = {manifest.value("data_samples", uint64_t{0}),
                     manifest.value("data_digest", uint64_t{0})};
    snapshot.model = read_part(checkpoint, kModel, manifest);
    snapshot.optimizer = read_part(checkpoint, kOptimizer, manifest);
    if (manifest.at("files").contains(kCodec))
      snapshot.codec_states = states_of(read_part(checkpoint, kCodec, manifest), snapshot.ranks);
    return snapshot;
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: {}", path, error.what()), ExitCode::kCheckpoint);
  } catch (const IoError& error) {
    throw Error(error.what(), ExitCode::kCheckpoint);
  } catch (const UsageError& error) {
    throw Error(fmt::format("{}: {}", path, error.what()), ExitCode::kCheckpoint);
  }
}

std::optional<Snapshot> CheckpointStore::load_newest(
    const std::function<void(const std::string&)>& warn) const {
  std::vector<uint64_t> there = steps();
  for (; !there.empty(); there.pop_back()) {
    try {
      return load(path_of(there.back()));
    } catch (const Error& error) {
      warn(fmt::format("checkpoint {} is damaged and skipped: {}", there.back(), error.what()));
    }
  }
  return std::nullopt;
}

}  // namespace horon::train
