#include "horon/data/format/convert_writers.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "horon/base/registry.h"
#include "horon/data/format/example.h"
#include "horon/data/format/image_folder.h"
#include "horon/data/format/npy.h"
#include "horon/data/format/tfrecord.h"
#include "horon/data/image/decode.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"
#include "horon/data/parallel.h"
#include "horon/file/file.h"

namespace horon {
namespace {

constexpr uint64_t kPerFile = 1250;
constexpr uint64_t kBlock = 4;  // samples that a thread takes at a time

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const uint8_t> span_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A sample that is being made into something else, with the memory for that.
struct Sample {
  const ConvertJob& job;
  uint64_t index = 0;
  Record record = {};
  Picture picture = {};
  std::vector<uint8_t> scratch = {};

  void read(uint64_t which) {
    index = which;
    record = job.from.read(index, scratch);
  }
  std::string where() const { return job.from.where(index); }
  void decode() {
    try {
      decode_record(record, picture);
    } catch (const Error& error) {
      throw CorruptRecord(where(), error.what());
    }
  }
  std::string as_jpeg() {
    if (record.form == PixelForm::kJpeg) return std::string(text_of(record.bytes));
    decode();
    return encode_jpeg(picture, job.options.quality);
  }
  // One plane after the other.
  std::string as_planes() {
    if (record.form == PixelForm::kChw) {
      picture.height = record.height;
      picture.width = record.width;
      picture.channels = record.channels;
      return std::string(text_of(record.bytes));
    }
    decode();
    std::string out;
    out.reserve(picture.pixels.size());
    const auto channels = static_cast<size_t>(picture.channels);
    for (size_t c = 0; c < channels; ++c) {
      for (size_t i = c; i < picture.pixels.size(); i += channels)
        out += static_cast<char>(picture.pixels[i]);
    }
    return out;
  }
};

using Make = std::function<void(Sample&, std::string& out)>;

// What `make` writes for each sample is taken in their order; many are made at a time.
void in_order(ConvertJob& job, const Range& range, const Make& make,
              const std::function<void(const std::string&)>& take) {
  std::mutex mutex;  // guards those below, and take
  std::condition_variable turn;
  uint64_t next = range.first;  // sample to take
  bool failed = false;
  const auto work = [&](const Range& block, Sample& sample, std::vector<std::string>& made) {
    for (uint64_t i = block.first; i < block.last; ++i) {
      sample.read(i);
      make(sample, made[i - block.first]);
    }
    std::unique_lock lock(mutex);
    // Blocks are handed out in order: the thread with the next one does not wait.
    turn.wait(lock, [&] { return failed || next == block.first; });
    if (failed) return;
    for (uint64_t i = 0; i < block.size(); ++i) take(made[i]);
    next = block.last;
    lock.unlock();
    turn.notify_all();
    job.tell(block.size());
  };
  for_blocks(range, kBlock, job.options.threads, [&]() -> BlockBody {
    return [&, sample = Sample{job},
            made = std::vector<std::string>(kBlock)](const Range& block) mutable {
      try {
        work(block, sample, made);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          failed = true;
        }
        turn.notify_all();
        throw;
      }
    };
  });
}

// A file of a header and records of one length, as much of it as is not there yet. The samples that
// were made now.
Range write_fixed(ConvertJob& job, const std::string& path, const std::string& header,
                  const Range& range, uint64_t each, const Make& make) {
  job.files.push_back(path);
  const auto there = file::stat(path);
  if (there && there->bytes == header.size() + range.size() * each) {
    job.tell(range.size());
    return {range.last, range.last};
  }
  uint64_t already = 0;
  const auto out = file::file_system_of(path).create(
      path, {.resumes = true, .identity = job.identity + file::base_name(path)}, already);
  const uint64_t whole = already < header.size() ? 0 : (already - header.size()) / each;
  uint64_t at = already < header.size() ? 0 : header.size() + whole * each;  // in the file
  const auto put = [&](const std::string& bytes) {
    const uint64_t skip = std::min<uint64_t>(already - std::min(already, at), bytes.size());
    out->append(std::string_view(bytes).substr(skip));
    at += bytes.size();
  };
  if (at == 0) put(header);
  job.tell(whole);
  const Range rest{range.first + whole, range.last};
  in_order(job, rest, make, put);
  out->commit();
  return rest;
}

// --- TFRecord

void imagenet_example(Sample& sample, std::string& out) {
  const std::string jpeg = sample.as_jpeg();
  const PictureSize size = jpeg_size(span_of(jpeg));
  const int channels = jpeg_channels(span_of(jpeg));
  out = ExampleBuilder()
            .add_bytes("image/encoded", jpeg)
            .add_bytes("image/format", "JPEG")
            .add_bytes("image/colorspace", channels == 1   ? "Grayscale"
                                           : channels == 4 ? "CMYK"
                                                           : "RGB")
            .add_integer("image/channels", channels)
            .add_integer("image/height", size.height)
            .add_integer("image/width", size.width)
            .add_integer("image/class/label", sample.record.label + 1)
            .add_bytes("image/class/synset", name_of_class(sample.job.from, sample.record.label))
            .add_bytes("image/filename",
                       fmt::format("{}_{}.JPEG", sample.job.options.split, sample.index))
            .build();
}

void raw_example(Sample& sample, std::string& out) {
  out = ExampleBuilder()
            .add_bytes("image", sample.as_planes())
            .add_integer("height", sample.picture.height)
            .add_integer("width", sample.picture.width)
            .add_integer("channels", sample.picture.channels)
            .add_integer("label", sample.record.label)
            .build();
}

bool is_whole(const std::string& path, uint64_t records) {
  if (!file::exists(path)) return false;
  const RecordIndex index = load_index(path);
  return index.positions.size() == records && !index.lost;  // else it is written again
}

// Also of classes without samples. Another split may have been written already, with fewer of them
// or more.
void write_class_names(const ConvertJob& job) {
  const std::string path = file::join_path(job.options.folder, "labels.txt");
  std::vector<std::string> names;
  if (file::exists(path)) names = read_class_names(path);
  const auto count = static_cast<size_t>(job.from.info().classes);
  for (size_t k = 0; k < std::min(count, names.size()); ++k) {
    const std::string mine = name_of_class(job.from, static_cast<int64_t>(k));
    if (mine != names[k])
      throw UsageError(fmt::format("{}: class {} is '{}' there, and '{}' here; give another folder",
                                   path, k, names[k], mine));
  }
  if (count <= names.size()) return;
  std::string text;
  for (size_t k = 0; k < count; ++k)
    text += fmt::format("{}: {}\n", k, name_of_class(job.from, static_cast<int64_t>(k)));
  file::write(path, text);
}

void to_tfrecord(ConvertJob& job, const Make& make) {
  const uint64_t size = job.from.size();
  const auto files = job.options.files > 0
                         ? static_cast<uint64_t>(job.options.files)
                         : std::max<uint64_t>(1, (size + kPerFile / 2) / kPerFile);
  if (files > size) throw UsageError(fmt::format("--shards {}: there are {} samples", files, size));
  write_class_names(job);
  for (uint64_t i = 0; i < files; ++i) {
    const Range range = cut(size, files, i);
    const std::string path = file::join_path(
        job.options.folder, fmt::format("{}-{:05}-of-{:05}", job.options.split, i, files));
    job.files.push_back(path);
    if (is_whole(path, range.size())) {  // of an earlier run
      job.tell(range.size());
      continue;
    }
    RecordWriter writer(path);
    in_order(job, range, make, [&](const std::string& record) { writer.write(record); });
    writer.commit();
  }
}

// --- images

void check_folder_names(const ConvertJob& job) {
  for (int label = 0; label < job.from.info().classes; ++label) {
    const std::string name = name_of_class(job.from, label);
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      throw UsageError(fmt::format("image_folder: '{}' is no name of a folder", name));
  }
}

// As it is, if it is a file already; not if it is there.
std::string write_picture(Sample& sample) {
  const PixelForm form = sample.record.form;
  const bool is_jpeg = form == PixelForm::kJpeg;
  std::string path = file::join_path(
      sample.job.options.folder, fmt::format("{}/{}/{:07}.{}", sample.job.options.split,
                                             name_of_class(sample.job.from, sample.record.label),
                                             sample.index, is_jpeg ? "jpg" : "png"));
  if (file::exists(path)) return path;
  if (is_jpeg || form == PixelForm::kPng) {
    file::write(path, text_of(sample.record.bytes));
  } else {
    sample.decode();
    file::write(path, encode_png(sample.picture));
  }
  return path;
}

void to_image_folder(ConvertJob& job) {
  check_folder_names(job);
  write_class_names(job);
  job.files.resize(job.from.size());
  for_blocks({0, job.from.size()}, kBlock, job.options.threads, [&]() -> BlockBody {
    return [&, sample = Sample{job}](const Range& block) mutable {
      for (uint64_t i = block.first; i < block.last; ++i, job.tell(1)) {
        sample.read(i);
        job.files[i] = write_picture(sample);
      }
    };
  });
}

// --- arrays

void to_npy(ConvertJob& job) {
  Sample first{job};
  first.read(0);
  first.decode();
  const Picture& like = first.picture;  // the others must be as large
  const std::vector<uint64_t> shape = {job.from.size(), static_cast<uint64_t>(like.height),
                                       static_cast<uint64_t>(like.width),
                                       static_cast<uint64_t>(like.channels)};
  std::vector<int64_t> labels(job.from.size());
  const auto make = [&](Sample& sample, std::string& out) {
    sample.decode();
    const Picture& mine = sample.picture;
    if (mine.height != like.height || mine.width != like.width || mine.channels != like.channels)
      throw UsageError(fmt::format(
          "npy: {} is {} x {} x {}, the first image {} x {} x {}; convert to tfrecord or "
          "image_folder",
          sample.where(), mine.width, mine.height, mine.channels, like.width, like.height,
          like.channels));
    labels[sample.index] = sample.record.label;
    out.assign(text_of(mine.pixels));
  };
  const std::string stem = file::join_path(job.options.folder, job.options.split);
  const Range made = write_fixed(job, stem + "_images.npy", npy_header("u1", shape),
                                 {0, job.from.size()}, like.pixels.size(), make);
  for (uint64_t i = 0; i < made.first; ++i) {  // of those that were there
    first.read(i);
    labels[i] = first.record.label;
  }
  std::string bytes = npy_header("i8", std::span(shape).first(1));
  bytes.append(reinterpret_cast<const char*>(labels.data()), labels.size() * sizeof(int64_t));
  file::write(stem + "_labels.npy", bytes);
  job.files.push_back(stem + "_labels.npy");
}

// A label and three planes; grey is the same three times.
void cifar_record(Sample& sample, std::string& out) {
  std::string planes = sample.as_planes();
  const Picture& picture = sample.picture;
  if (picture.height != 32 || picture.width != 32)
    throw UsageError(fmt::format("cifar10: {} is {} x {}; only 32 x 32 fits", sample.where(),
                                 picture.width, picture.height));
  if (picture.channels == 1) planes += planes + planes;
  out = static_cast<char>(sample.record.label) + planes;
}

void to_cifar(ConvertJob& job) {
  constexpr uint64_t kRecord = 1 + 3 * 32 * 32;
  if (job.from.info().classes > 10)
    throw UsageError(fmt::format("cifar10: {} classes; up to 10 fit", job.from.info().classes));
  const uint64_t parts = job.options.split == "train" ? 5 : 1;
  if (job.options.split == "validation" || job.from.size() < parts)
    throw UsageError("cifar10: a training set of at least 5 samples, or a test set");
  for (uint64_t part = 0; part < parts; ++part) {
    const std::string name =
        parts == 1 ? "test_batch.bin" : fmt::format("data_batch_{}.bin", part + 1);
    write_fixed(job, file::join_path(job.options.folder, name), "",
                cut(job.from.size(), parts, part), kRecord, cifar_record);
  }
}

const Registry<ConvertWriter>& writers() {
  static const Registry<ConvertWriter> kRegistry = [] {
    Registry<ConvertWriter> all("format to write");
    all.add("tfrecord", [](ConvertJob& job) { to_tfrecord(job, imagenet_example); });
    all.add("tfrecord_raw", [](ConvertJob& job) { to_tfrecord(job, raw_example); });
    all.add("image_folder", to_image_folder);
    all.add("npy", to_npy);
    all.add("cifar10", to_cifar);
    return all;
  }();
  return kRegistry;
}

}  // namespace

void ConvertJob::tell(uint64_t more) {
  if (options.stop.stop_requested())
    throw Error("interrupted; the same command continues with what is not finished",
                ExitCode::kInterrupted);
  const std::lock_guard lock(mutex_);
  done_ += more;
  if (options.progress) options.progress(done_, from.size());
}

std::string name_of_class(const Dataset& from, int64_t label) {
  const auto& names = from.info().class_names;
  return names.empty() ? fmt::format("{:05}", label) : names[static_cast<size_t>(label)];
}

const ConvertWriter& find_writer(const std::string& format) { return writers().find(format); }

}  // namespace horon
