#include "horon/data/format/tfrecord_set.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "horon/base/text.h"
#include "horon/data/format/example.h"
#include "horon/data/format/image_folder.h"
#include "horon/data/format/tfrecord.h"
#include "horon/data/image/png.h"
#include "horon/file/file.h"

namespace horon {
namespace {

constexpr uint64_t kChunkBytes = 8U << 20;  // read together, mixed with others
constexpr uint64_t kMostUnpacked = uint64_t{16} << 30;

struct RecordFile {
  std::shared_ptr<file::ReadableFile> file;
  std::vector<RecordPosition> positions;
  std::vector<std::string> unpacked;  // of a compressed file: its records have no random access
  std::map<uint64_t, std::string> damaged;  // of those: which are not good, and why

  uint64_t first = 0;  // its first sample's number
};

int64_t integer_of(const Example& example, const char* name) {
  const auto found = example.find(name);
  if (found == example.end() || found->second.integers.empty())
    throw Error(fmt::format("there is no number '{}'", name), ExitCode::kData);
  return found->second.integers.front();
}

std::span<const uint8_t> bytes_of(const Feature& feature, const char* name) {
  if (feature.bytes.size() != 1)
    throw Error(fmt::format("'{}' has {} values, expected one", name, feature.bytes.size()),
                ExitCode::kData);
  return {reinterpret_cast<const uint8_t*>(feature.bytes[0].data()), feature.bytes[0].size()};
}

// Raw planes of a square colour image: 3072 bytes are 3 x 32 x 32.
int side_of(size_t bytes) {
  for (int side = 1; side <= 4096; ++side) {
    if (size_t{3} * static_cast<size_t>(side) * static_cast<size_t>(side) == bytes) return side;
  }
  throw Error(fmt::format("{} bytes are no square colour image, and there is no 'height' and "
                          "'width'",
                          bytes),
              ExitCode::kData);
}

// Planes whose size is in the record.
void take_shape(const Example& example, Record& record) {
  record.channels = 3;
  if (!example.contains("height") && !example.contains("width")) {
    record.height = record.width = side_of(record.bytes.size());
    return;
  }
  const int64_t height = integer_of(example, "height");
  const int64_t width = integer_of(example, "width");
  const int64_t channels = example.contains("channels") ? integer_of(example, "channels") : 3;
  check_picture_size(static_cast<uint64_t>(height), static_cast<uint64_t>(width));
  if ((channels != 1 && channels != 3) ||
      static_cast<uint64_t>(height * width * channels) != record.bytes.size())
    throw Error(fmt::format("{} bytes are no image of {} x {} x {}", record.bytes.size(), width,
                            height, channels),
                ExitCode::kData);
  record.height = static_cast<int>(height);
  record.width = static_cast<int>(width);
  record.channels = static_cast<int>(channels);
}

Record record_of(const Example& example) {
  Record record;
  if (const auto encoded = example.find("image/encoded"); encoded != example.end()) {
    record.bytes = bytes_of(encoded->second, "image/encoded");
    record.form = is_png(record.bytes) ? PixelForm::kPng : PixelForm::kJpeg;
    record.channels = 3;
    record.label = integer_of(example, "image/class/label") - 1;  // 1..1000 in the files
    return record;
  }
  const auto raw = example.find("image");
  if (raw == example.end())
    throw Error("neither 'image/encoded' nor 'image' found", ExitCode::kData);
  record.bytes = bytes_of(raw->second, "image");
  record.form = PixelForm::kChw;
  take_shape(example, record);
  record.label = integer_of(example, "label");
  return record;
}

// Every file stays open: the usual limit of 1024 is less than ImageNet has.
void allow_open_files(uint64_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return;
  limit.rlim_cur = std::min<rlim_t>(std::max<rlim_t>(limit.rlim_cur, count), limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

class TfrecordSet final : public Dataset {
 public:
  TfrecordSet(const DatasetRequest& request, const std::vector<std::string>& paths) {
    allow_open_files(paths.size() + 256);
    for (const std::string& path : paths) {
      std::shared_ptr<file::ReadableFile> file = file::open(path);
      const bool packed = compression_of(*file) != Compression::kNone;
      files_.push_back({std::move(file), {}, {}, {}, size_});
      packed ? unpack(files_.back()) : find_records(files_.back());
      size_ += files_.back().positions.size();
    }
    if (size_ == 0 && !losses_.empty()) throw Error(losses_.front(), ExitCode::kData);
    if (size_ == 0) throw UsageError(fmt::format("{}: no records", paths.front()));
    info_ = {"tfrecord", request.split, 0, 0, 3, request.classes, {}};
    take_class_names({request.folder, std::filesystem::path(paths.front()).parent_path()});
    look_at_some();
  }
  const DatasetInfo& info() const override { return info_; }
  uint64_t size() const override { return size_; }
  Record read(uint64_t index, std::vector<uint8_t>& scratch) const override {
    const RecordFile& from = file_of(index);
    const uint64_t at = index - from.first;
    if (const auto bad = from.damaged.find(at); bad != from.damaged.end())
      throw CorruptRecord(where(index), bad->second);
    const auto bytes = from.unpacked.empty() ? read_record(*from.file, from.positions[at], scratch)
                                             : span_of(from.unpacked[at]);
    try {
      const Record record = record_of(parse_example(bytes));
      if (info_.classes > 0 && (record.label < 0 || record.label >= info_.classes))
        throw Error(fmt::format("label {} of {} classes", record.label, info_.classes),
                    ExitCode::kData);
      return record;
    } catch (const Error& error) {
      throw CorruptRecord(where(index), error.what());
    }
  }
  std::string where(uint64_t index) const override {
    const RecordFile& from = file_of(index);
    return fmt::format("{}, record {} at offset {}", from.file->path(), index - from.first,
                       from.positions[index - from.first].offset);
  }
  std::vector<uint64_t> chunks() const override {
    std::vector<uint64_t> sizes;
    for (const RecordFile& from : files_) {
      uint64_t bytes = kChunkBytes;  // a file begins a chunk
      if (!from.unpacked.empty()) {  // in memory: nothing is nearer than anything else
        sizes.push_back(from.positions.size());
        continue;
      }
      for (const RecordPosition& position : from.positions) {
        if (bytes >= kChunkBytes) {
          sizes.push_back(0);
          bytes = 0;
        }
        ++sizes.back();
        bytes += position.bytes;
      }
    }
    return sizes;
  }

  std::vector<std::string> losses() const override { return losses_; }
  uint64_t memory_bytes() const override {
    uint64_t bytes = 0;
    for (const RecordFile& from : files_) {
      bytes += from.positions.size() * sizeof(RecordPosition);
      for (const std::string& record : from.unpacked)
        bytes += sizeof(std::string) + record.capacity();
    }
    return bytes;
  }
  uint64_t index_hash() const override {
    uint64_t hash = 0;
    for (const RecordFile& from : files_) {
      const std::string name = file::base_name(from.file->path());
      hash = hash_bytes(name.data(), name.size(), hash + 1);
      for (const RecordPosition& position : from.positions)
        hash = hash_bytes(&position.bytes, 4, hash);
    }
    return hash;
  }

 private:
  static std::span<const uint8_t> span_of(const std::string& record) {
    return {reinterpret_cast<const uint8_t*>(record.data()), record.size()};
  }
  // labels.txt, as convert writes it: names, and how many there are.
  void take_class_names(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
      const std::string path = file::join_path(folder, "labels.txt");
      if (!file::exists(path)) continue;
      std::vector<std::string> names = read_class_names(path);
      const auto count = static_cast<int>(names.size());
      if (info_.classes == 0) info_.classes = count;
      if (info_.classes == count) info_.class_names = std::move(names);
      return;
    }
  }
  // The schema from the first record that is good; a size if some records all over the files have
  // the same.
  void look_at_some() {
    constexpr uint64_t kLookedAt = 64;
    std::vector<uint8_t> scratch;
    uint64_t first = 0;
    for (bool found = false; !found; ++first) {
      try {
        const Record record = read(first, scratch);
        info_.height = record.height;
        info_.width = record.width;
        info_.channels = record.channels;
        if (info_.classes == 0) info_.classes = record.form == PixelForm::kChw ? 10 : 1000;
        found = true;
      } catch (const CorruptRecord&) {
        if (first + 1 == size_ || first == 1000) throw;
      }
    }
    if (info_.height == 0) return;  // files of images: all their headers would have to be read
    for (uint64_t i = 0; i < kLookedAt; ++i) {
      try {
        const Record record = read(i * size_ / kLookedAt, scratch);
        if (record.height != info_.height || record.width != info_.width)
          info_.height = info_.width = 0;
        info_.channels = std::max(info_.channels, record.channels);
      } catch (const CorruptRecord&) {  // reported when the record is read
      }
    }
  }
  void lose(const RecordFile& from, const RecordDamage& damage) {
    losses_.push_back(fmt::format("{}, record {} at offset {}: {}", from.file->path(), damage.index,
                                  damage.offset, damage.reason));
  }
  void find_records(RecordFile& from) {
    RecordIndex index = load_index(from.file->path());
    from.positions = std::move(index.positions);
    if (index.lost) lose(from, *index.lost);
  }
  void unpack(RecordFile& from) {
    RecordReader reader(file::open(from.file->path()));
    std::span<const uint8_t> record;
    uint64_t bytes = 0;
    const auto keep = [&](uint64_t offset, std::string contents) {
      bytes += contents.size();
      if (bytes > kMostUnpacked)
        throw UsageError(
            fmt::format("{}: more than 16 GB when unpacked; unpack it on disk", from.file->path()));
      from.positions.push_back({offset, static_cast<uint32_t>(contents.size())});
      from.unpacked.push_back(std::move(contents));
    };
    size_t told = 0;
    const auto keep_damaged = [&] {  // they keep their numbers
      for (; told < reader.damages().size(); ++told) {
        const RecordDamage& damage = reader.damages()[told];
        if (damage.rest_is_lost) {
          lose(from, damage);
          continue;
        }
        from.damaged[damage.index] = damage.reason;
        keep(damage.offset, "");
      }
    };
    try {
      while (reader.next(record)) {
        keep_damaged();
        keep(reader.offset(), std::string(record.begin(), record.end()));
      }
      keep_damaged();
    } catch (const CorruptRecord& error) {  // the compression itself
      keep_damaged();
      losses_.push_back(fmt::format("{}; the rest of the file is lost", error.what()));
    }
  }
  const RecordFile& file_of(uint64_t index) const {
    require(index < size_, "a sample that is not there");
    const auto after =
        std::upper_bound(files_.begin(), files_.end(), index,
                         [](uint64_t i, const RecordFile& one) { return i < one.first; });
    return *(after - 1);
  }
  std::vector<RecordFile> files_;
  std::vector<std::string> losses_;
  uint64_t size_ = 0;
  DatasetInfo info_;
};

// train-00000-of-01024 and so on (all of them must be there), or SPLIT.tfrecords, or *.tfrecord.
std::vector<std::string> find_files(const DatasetRequest& request) {
  std::vector<std::string> stems = {request.split};
  if (request.split == "test") stems.insert(stems.end(), {"eval", "validation"});
  for (const std::string& stem : stems) {
    for (const std::string& folder : {request.folder, file::join_path(request.folder, stem)}) {
      if (!file::exists(folder)) continue;
      std::vector<std::string> paths;
      for (const char* pattern : {"-*-of-*", ".tfrecord*", "*.tfrecord*"}) {
        for (const file::FileInfo& one :
             file::list(folder)) {  // no pattern of the folder's own name
          const bool matches =
              fnmatch((stem + pattern).c_str(), file::base_name(one.path).c_str(), 0) == 0;
          if (matches && !one.path.ends_with(".index") && !one.is_folder) paths.push_back(one.path);
        }
        if (!paths.empty()) return paths;
      }
    }
  }
  throw NoSuchSplit(fmt::format("tfrecord: no {}-*-of-* and no {}*.tfrecord* in '{}'",
                                request.split, request.split, request.folder));
}

void check_all_there(const std::vector<std::string>& paths) {
  const std::string name = file::base_name(paths.front());
  const size_t of = name.rfind("-of-");
  if (of == std::string::npos) return;
  const auto wanted = parse_number(name.substr(of + 4));
  if (wanted && *wanted != static_cast<double>(paths.size()))
    throw UsageError(fmt::format("{}: {} files are there, their names say {}", paths.front(),
                                 paths.size(), *wanted));
}

}  // namespace

std::shared_ptr<Dataset> open_tfrecord(const DatasetRequest& request) {
  const std::vector<std::string> paths = find_files(request);
  check_all_there(paths);
  return std::make_shared<TfrecordSet>(request, paths);
}

}  // namespace horon
