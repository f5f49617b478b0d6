#include "horon/data/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "horon/base/registry.h"
#include "horon/base/text.h"
#include "horon/data/example.h"
#include "horon/data/npy.h"
#include "horon/data/order.h"
#include "horon/data/tfrecord.h"
#include "horon/file/file.h"

namespace horon {
namespace {

constexpr uint64_t kPerShard = 1250;

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string name_of_class(const Dataset& from, int64_t label) {
  const auto& names = from.info().class_names;
  return names.empty() ? fmt::format("{:05}", label) : names[static_cast<size_t>(label)];
}

// What all the writers below share.
struct Job {
  const Dataset& from;
  const ConvertOptions& options;
  std::vector<std::string> files = {};
  std::vector<uint8_t> scratch = {};
  Picture picture = {};

  void tell(uint64_t done) const {
    if (options.stop.stop_requested())
      throw Error("interrupted; the same command goes on with what is not finished",
                  ExitCode::kInterrupted);
    if (options.progress) options.progress(done, from.size());
  }
  std::string as_jpeg(const Record& record) {
    if (record.form == PixelForm::kJpeg) return std::string(text_of(record.bytes));
    decode_record(record, picture);
    return encode_jpeg(picture, options.quality);
  }
  // One plane after the other.
  std::string as_planes(const Record& record) {
    if (record.form == PixelForm::kChw) return std::string(text_of(record.bytes));
    decode_record(record, picture);
    std::string planes;
    for (size_t c = 0; c < static_cast<size_t>(picture.channels); ++c) {
      for (size_t i = c; i < picture.pixels.size(); i += static_cast<size_t>(picture.channels))
        planes += static_cast<char>(picture.pixels[i]);
    }
    return planes;
  }
};

std::string imagenet_example(Job& job, uint64_t index) {
  const Record record = job.from.read(index, job.scratch);
  const std::string jpeg = job.as_jpeg(record);
  const PictureSize size = jpeg_size({reinterpret_cast<const uint8_t*>(jpeg.data()), jpeg.size()});
  return ExampleBuilder()
      .add_bytes("image/encoded", jpeg)
      .add_bytes("image/format", "JPEG")
      .add_bytes("image/colorspace", "RGB")
      .add_integer("image/channels", 3)
      .add_integer("image/height", size.height)
      .add_integer("image/width", size.width)
      .add_integer("image/class/label", record.label + 1)
      .add_bytes("image/class/synset", name_of_class(job.from, record.label))
      .add_bytes("image/filename", fmt::format("{}_{}.JPEG", job.options.split, index))
      .build();
}

std::string raw_example(Job& job, uint64_t index) {
  const Record record = job.from.read(index, job.scratch);
  const std::string planes = job.as_planes(record);
  const auto side =
      static_cast<uint64_t>(std::lround(std::sqrt(static_cast<double>(planes.size()) / 3)));
  if (3 * side * side != planes.size() || (record.channels != 3 && record.height > 0) ||
      record.height != record.width)
    throw UsageError(
        fmt::format("tfrecord_raw: {} is no square colour picture; convert to tfrecord",
                    job.from.where(index)));
  return ExampleBuilder().add_bytes("image", planes).add_integer("label", record.label).build();
}

bool is_whole(const std::string& path, uint64_t records) {
  if (!file::exists(path)) return false;
  const RecordIndex index = load_index(path);
  return index.places.size() == records && !index.lost;  // else it is written again
}

void to_tfrecord(Job& job, bool raw) {
  const uint64_t size = job.from.size();
  const auto shards = job.options.shards > 0
                          ? static_cast<uint64_t>(job.options.shards)
                          : std::max<uint64_t>(1, (size + kPerShard / 2) / kPerShard);
  for (uint64_t shard = 0; shard < shards; ++shard) {
    const Range range = cut(size, shards, shard);
    const std::string path = file::join(
        job.options.folder, fmt::format("{}-{:05}-of-{:05}", job.options.split, shard, shards));
    job.files.push_back(path);
    if (is_whole(path, range.size())) continue;  // of an earlier run
    RecordWriter writer(path);
    for (uint64_t i = range.first; i < range.last; ++i) {
      writer.write(raw ? raw_example(job, i) : imagenet_example(job, i));
      job.tell(i + 1);
    }
    writer.commit();
  }
  job.tell(size);
}

void to_image_folder(Job& job) {
  std::string labels;  // also of classes without samples
  for (int label = 0; label < job.from.info().classes; ++label)
    labels += fmt::format("{}: {}\n", label, name_of_class(job.from, label));
  file::write(file::join(job.options.folder, "labels.txt"), labels);

  for (uint64_t i = 0; i < job.from.size(); ++i, job.tell(i)) {
    const Record record = job.from.read(i, job.scratch);
    const bool jpeg = record.form == PixelForm::kJpeg;
    const std::string path =
        file::join(job.options.folder,
                   fmt::format("{}/{}/{:07}.{}", job.options.split,
                               name_of_class(job.from, record.label), i, jpeg ? "jpg" : "png"));
    job.files.push_back(path);
    if (file::exists(path)) continue;
    if (jpeg || record.form == PixelForm::kPng) {
      file::write(path, text_of(record.bytes));
      continue;
    }
    decode_record(record, job.picture);
    file::write(path, encode_png(job.picture));
  }
}

void to_npy(Job& job) {
  decode_record(job.from.read(0, job.scratch), job.picture);  // the others must be as large
  const int height = job.picture.height;
  const int width = job.picture.width;
  const std::vector<uint64_t> shape = {job.from.size(), static_cast<uint64_t>(height),
                                       static_cast<uint64_t>(width),
                                       static_cast<uint64_t>(job.picture.channels)};
  const std::string stem = file::join(job.options.folder, job.options.split);
  const auto images = file::create(stem + "_images.npy");
  std::string labels = npy_header("i8", std::span(shape).first(1));
  images->append(npy_header("u1", shape));
  for (uint64_t i = 0; i < job.from.size(); ++i, job.tell(i)) {
    const Record record = job.from.read(i, job.scratch);
    decode_record(record, job.picture);
    if (job.picture.height != height || job.picture.width != width)
      throw UsageError(fmt::format(
          "npy: {} is {} x {}, the first picture {} x {}; convert to tfrecord or image_folder",
          job.from.where(i), job.picture.width, job.picture.height, width, height));
    images->append(text_of(job.picture.pixels));
    labels.append(reinterpret_cast<const char*>(&record.label), sizeof(record.label));
  }
  images->commit();
  file::write(stem + "_labels.npy", labels);
  job.files = {stem + "_images.npy", stem + "_labels.npy"};
}

void to_cifar(Job& job) {
  const DatasetInfo& info = job.from.info();
  if (info.height != 32 || info.width != 32 || info.channels != 3 || info.classes > 10)
    throw UsageError("cifar10: only 32 x 32 colour pictures of up to 10 classes fit");
  const uint64_t parts = job.options.split == "train" ? 5 : 1;
  if (job.options.split == "validation" || job.from.size() < parts)
    throw UsageError("cifar10: a training set of at least 5 samples, or a test set");
  for (uint64_t part = 0; part < parts; ++part) {
    const Range range = cut(job.from.size(), parts, part);
    const std::string name =
        parts == 1 ? "test_batch.bin" : fmt::format("data_batch_{}.bin", part + 1);
    job.files.push_back(file::join(job.options.folder, name));
    const auto out = file::create(job.files.back());
    for (uint64_t i = range.first; i < range.last; ++i) {
      const Record record = job.from.read(i, job.scratch);
      const std::string planes = job.as_planes(record);
      if (planes.size() != 3072)
        throw CorruptRecord(job.from.where(i), "a picture of another size");
      out->append(static_cast<char>(record.label) + planes);
      job.tell(i + 1);
    }
    out->commit();
  }
}

using Writer = std::function<void(Job&)>;
const Registry<Writer>& writers() {
  static const Registry<Writer> registry = [] {
    Registry<Writer> all("format to write");
    all.add("tfrecord", [](Job& job) { to_tfrecord(job, false); });
    all.add("tfrecord_raw", [](Job& job) { to_tfrecord(job, true); });
    all.add("image_folder", to_image_folder);
    all.add("npy", to_npy);
    all.add("cifar10", to_cifar);
    return all;
  }();
  return registry;
}

}  // namespace

void decode_record(const Record& record, Picture& out) {
  if (record.form == PixelForm::kJpeg) return decode_jpeg(record.bytes, out);
  if (record.form == PixelForm::kPng) return decode_png(record.bytes, out);
  out.height = record.height;
  out.width = record.width;
  out.channels = record.channels;
  const size_t count = static_cast<size_t>(record.height) * static_cast<size_t>(record.width);
  const auto channels = static_cast<size_t>(record.channels);
  out.pixels.assign(record.bytes.begin(), record.bytes.end());
  if (record.form != PixelForm::kChw || channels == 1) return;
  for (size_t c = 0; c < channels; ++c)
    for (size_t i = 0; i < count; ++i) out.pixels[channels * i + c] = record.bytes[c * count + i];
}

namespace {

// What stands in a folder that is being filled: going on is only possible with the same.
std::string describe(const Dataset& from, const ConvertOptions& options) {
  std::vector<uint8_t> scratch;
  uint64_t sample = 0;
  for (const uint64_t index : {uint64_t{0}, from.size() / 2, from.size() - 1}) {
    const Record record = from.read(index, scratch);
    sample = hash_bytes(record.bytes.data(), record.bytes.size(),
                        sample + static_cast<uint64_t>(record.label) + 1);
  }
  return fmt::format("{} {}, {} samples ({:016x}) as {}, {} files, quality {}\n", from.info().name,
                     from.info().split, from.size(), sample, options.format, options.shards,
                     options.quality);
}

void begin(const Dataset& from, const ConvertOptions& options) {
  const std::string path = file::join(options.folder, options.split + ".made-from");
  const std::string mine = describe(from, options);
  if (!file::exists(path)) {
    file::make_folder(options.folder);
    return file::write(path, mine);
  }
  const std::string before = file::read(path, 1U << 16);
  if (before != mine)
    throw UsageError(
        fmt::format("{} holds something else ({}); this is {}: give another folder, or remove it",
                    options.folder, trim(before), trim(mine)));
}

}  // namespace

std::vector<std::string> convert_dataset(const Dataset& from, const ConvertOptions& options) {
  const Writer& writer = writers().find(options.format);
  if (from.size() == 0) throw UsageError("a data set without samples");
  begin(from, options);
  Job job{from, options};
  writer(job);
  return job.files;
}

}  // namespace horon
