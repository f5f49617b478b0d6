#include "horon/data/format/convert.h"

#include <fmt/format.h>

#include "horon/base/text.h"
#include "horon/data/format/convert_writers.h"
#include "horon/file/file.h"

namespace horon {

namespace {

// The mark of an unfinished conversion in its folder: it resumes only with the same source and
// options.
std::string describe(const Dataset& from, const ConvertOptions& options) {
  std::vector<uint8_t> scratch;
  uint64_t sample = 0;
  for (const uint64_t index : {uint64_t{0}, from.size() / 2, from.size() - 1}) {
    const Record record = from.read(index, scratch);
    sample = hash_bytes(record.bytes.data(), record.bytes.size(),
                        sample + static_cast<uint64_t>(record.label) + 1);
  }
  return fmt::format("{} {}, {} samples ({:016x}) as {}, {} files, quality {}\n", from.info().name,
                     from.info().split, from.size(), sample, options.format, options.files,
                     options.quality);
}

// Whether the folder is a new one; UsageError if something else is being made in it.
bool begin(const std::string& path, const std::string& mine, const ConvertOptions& options) {
  if (!file::exists(path)) {
    file::make_folder(options.folder);
    file::write(path, mine);
    return true;
  }
  const std::string before = file::read(path, 1U << 16);
  if (before != mine)
    throw UsageError(
        fmt::format("{} contains other data ({}), not {}: choose another folder, or remove it",
                    options.folder, trim(before), trim(mine)));
  return false;
}

}  // namespace

std::vector<std::string> convert_dataset(const Dataset& from, const ConvertOptions& options) {
  const ConvertWriter& writer = find_writer(options.format);
  if (from.size() == 0) throw UsageError("a data set without samples");
  for (const std::string& one : from.losses()) throw Error(one, ExitCode::kData);
  const std::string mark = file::join_path(options.folder, options.split + ".made-from");
  const std::string identity = describe(from, options);
  const bool is_new = begin(mark, identity, options);
  ConvertJob job(from, options, identity);
  try {
    writer(job);
  } catch (const UsageError&) {  // it cannot be made there, but something else may be
    if (is_new) file::remove(mark);
    throw;
  }
  return job.files;
}

}  // namespace horon
