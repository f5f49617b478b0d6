#include "horon/file/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/file/file.h"

namespace horon::file {
namespace {

uint32_t crc_of(const ReadableFile& file, uint64_t bytes) {
  uint32_t crc = 0;
  uint64_t left = bytes;
  std::vector<std::byte> buffer(1U << 20);
  for (uint64_t at = 0; left > 0;) {
    const size_t got =
        file.read_at(at, std::span(buffer).first(std::min<uint64_t>(left, buffer.size())));
    if (got == 0) break;
    crc = crc32c(buffer.data(), got, crc);
    at += got;
    left -= got;
  }
  return crc;
}

// Whether a file is there already: as large, and not older.
bool is_same(const FileInfo& source, const FileInfo& target) {
  return !target.is_folder && !target.leads_nowhere && target.bytes == source.bytes &&
         target.modified_ns >= source.modified_ns;
}

std::string below(const std::string& folder, const std::string& path) {
  std::string rest = path.substr(folder.size());
  rest.erase(0, rest.find_first_not_of('/'));
  return rest;
}

}  // namespace

void copy(const std::string& from, const std::string& to, const CopyOptions& options) {
  const auto source = open(from);
  const auto info = stat(from);
  // Without a modification time it is unknown whether it is still the same file.
  const bool known = info && info->modified_ns > 0;
  const std::string identity =
      known ? fmt::format("{} {} {}", from, source->size(), info->modified_ns) : "";
  uint64_t already = 0;
  const auto sink =
      file_system_of(to).create(to, {known, identity, info ? info->mode : -1}, already);
  uint32_t crc = already > 0 ? crc_of(*open(sink->temporary()), already) : 0;
  if (options.on_bytes && already > 0) options.on_bytes(already);
  uint64_t total = already;
  source->read_all(already, [&](std::span<const std::byte> piece) {
    if (options.stop.stop_requested())
      throw Error(fmt::format("{}: interrupted", to), ExitCode::kInterrupted);
    sink->append(piece);
    crc = crc32c(piece.data(), piece.size(), crc);
    total += piece.size();
    if (options.on_bytes) options.on_bytes(piece.size());
  });
  if (total != source->size())
    throw IoError(fmt::format("{}: {} bytes instead of {}", from, total, source->size()));
  if (options.verifies && !sink->temporary().empty()) {
    const auto written = open(sink->temporary());
    if (written->size() != total || crc_of(*written, total) != crc)
      throw IoError(fmt::format("{}: what was written does not read back the same", to));
  }
  sink->commit();
}

CopyPlan plan_copy(const std::string& from, const std::vector<FileInfo>& source,
                   const std::string& to, const std::vector<FileInfo>& target) {
  std::map<std::string, const FileInfo*> there;
  for (const FileInfo& info : target) there[below(to, info.path)] = &info;
  CopyPlan plan;
  for (const FileInfo& info : source) {
    if (info.leads_nowhere || info.is_folder) {
      plan.left_out.push_back(fmt::format(
          "{}: {}", info.path,
          info.is_folder ? "a link to a folder; copy that by its own name" : "a dangling link"));
      continue;
    }
    const std::string name = below(from, info.path);
    const auto found = there.find(name);
    if (found != there.end() && is_same(info, *found->second)) {
      ++plan.skipped;
      continue;
    }
    plan.items.push_back({info.path, join_path(to, name), info.bytes});
    plan.bytes += info.bytes;
  }
  return plan;
}

namespace {

CopyPlan plan_tree(const std::string& from, const std::string& to) {
  std::vector<FileInfo> folders;
  const auto source = list_tree(from, &folders);
  if (source.empty()) throw IoError(fmt::format("copy {}: there are no files in it", from));
  const auto target = stat(to);
  if (target && !target->is_folder)
    throw IoError(fmt::format("copy {} to {}: the target is a file", from, to));
  CopyPlan plan = plan_copy(from, source, to, target ? list_tree(to) : std::vector<FileInfo>());
  for (const FileInfo& one : folders) plan.folders.push_back(join_path(to, below(from, one.path)));
  return plan;
}

CopyPlan plan_for(const std::string& from, const std::string& to) {
  const auto info = stat(from);
  if (!info) throw IoError(fmt::format("copy {}: No such file or directory", from));
  if (info->leads_nowhere) throw IoError(fmt::format("copy {}: a dangling link", from));
  if (info->is_folder) return plan_tree(from, to);
  const auto target = stat(to);
  const bool into = to.ends_with('/') || (target && target->is_folder);
  const std::string path = into ? join_path(to, base_name(from)) : to;
  const auto there = stat(path);
  CopyPlan plan;
  if (there && info->modified_ns > 0 && is_same(*info, *there)) {
    plan.skipped = 1;
  } else {
    plan.items = {{from, path, info->bytes}};
    plan.bytes = info->bytes;
  }
  return plan;
}

}  // namespace

TreeCopyResult copy_parallel(const std::string& from, const std::string& to,
                             const TreeCopyOptions& options) {
  const CopyPlan plan = plan_for(from, to);
  TreeCopyResult result;
  result.skipped = plan.skipped;
  result.left_out = plan.left_out;
  for (const std::string& folder : plan.folders) make_folder(folder);  // also empty ones
  std::mutex mutex;  // guards result and the progress
  std::atomic<size_t> next{0};
  const auto tell = [&] {
    if (options.progress)
      options.progress(result.bytes, plan.bytes, result.copied + result.failed.size(),
                       plan.items.size());
  };
  const auto work = [&] {
    for (size_t i = next++; i < plan.items.size() && !options.stop.stop_requested(); i = next++) {
      const CopyPlan::Item& item = plan.items[i];
      std::string failure;
      try {
        copy(item.from, item.to,
             {.verifies = options.verifies,
              .on_bytes =
                  [&](uint64_t bytes) {
                    const std::lock_guard lock(mutex);
                    result.bytes += bytes;
                    tell();
                  },
              .stop = options.stop});
      } catch (const std::exception& error) {
        failure = error.what();
      }
      const std::lock_guard lock(mutex);
      if (failure.empty()) {
        ++result.copied;
      } else {
        result.failed.push_back(fmt::format("{}: {}", item.from, failure));
      }
      tell();
    }
  };
  const size_t threads = std::min<size_t>(static_cast<size_t>(std::max(options.threads, 1)),
                                          std::max<size_t>(plan.items.size(), 1));
  {
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
  }
  std::sort(result.failed.begin(), result.failed.end());
  return result;
}

}  // namespace horon::file
