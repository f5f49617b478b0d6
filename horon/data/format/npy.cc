// Arrays in numpy's format: SPLIT_images.npy (u8, N x H x W x C) and
// SPLIT_labels.npy (integers).
#include "horon/data/format/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "horon/base/text.h"
#include "horon/data/dataset.h"
#include "horon/data/image/picture.h"
#include "horon/file/file.h"

namespace horon {
namespace {

std::vector<uint8_t> read_start(const file::ReadableFile& file, uint64_t bytes) {
  std::vector<uint8_t> start(std::min(bytes, file.size()));
  start.resize(file.read_at(0, std::as_writable_bytes(std::span(start))));
  return start;
}

NpyHeader header_of(const file::ReadableFile& file) {
  return parse_npy_header(read_start(file, kNpyStart), file.size(), file.path());
}

class NpyDataset final : public Dataset {
 public:
  NpyDataset(const DatasetRequest& request, const std::string& images, const std::string& labels)
      : images_(file::open(images)), pixels_(header_of(*images_)) {
    const auto label_file = file::open(labels);
    header_of(*label_file);  // before memory is taken for it
    label_bytes_ = read_start(*label_file, label_file->size());
    numbers_ = parse_npy(label_bytes_, labels);
    if (pixels_.dtype != "u1" || pixels_.shape.size() < 3 || pixels_.shape.size() > 4)
      throw CorruptRecord(images, "u8 of N x H x W or N x H x W x C expected");
    if (numbers_.shape.size() != 1 || numbers_.shape[0] != pixels_.shape[0])
      throw CorruptRecord(labels, "different numbers of labels and images");
    const auto& shape = pixels_.shape;
    try {
      check_picture_size(shape[1], shape[2]);
    } catch (const Error& error) {
      throw CorruptRecord(images, error.what());
    }
    if (shape.size() == 4 && shape[3] != 1 && shape[3] != 3)
      throw CorruptRecord(images, fmt::format("{} channels: 1 or 3 are read", shape[3]));
    info_ = {"npy",
             request.split,
             static_cast<int>(shape[1]),
             static_cast<int>(shape[2]),
             shape.size() == 4 ? static_cast<int>(shape[3]) : 1,
             request.classes,
             {}};
    if (info_.classes == 0) {
      for (uint64_t i = 0; i < size(); ++i)
        info_.classes = static_cast<int>(std::max<int64_t>(
            info_.classes, std::clamp<int64_t>(label(i), 0, kMostClasses - 1) + 1));
    }
  }
  const DatasetInfo& info() const override { return info_; }
  uint64_t size() const override { return pixels_.shape[0]; }
  // Read, not mapped: a file that somebody cuts meanwhile is an error then, not the end of us.
  Record read(uint64_t index, std::vector<uint8_t>& scratch) const override {
    require(index < size(), "a sample that is not there");
    const uint64_t each = pixels_.bytes / size();
    const int64_t number = label(index);
    if (number < 0 || number >= info_.classes)
      throw CorruptRecord(where(index),
                          fmt::format("label {} of {} classes", number, info_.classes));
    scratch.resize(each);
    if (images_->read_at(pixels_.offset + index * each,
                         std::as_writable_bytes(std::span(scratch))) < each)
      throw CorruptRecord(where(index), "the file was cut off since it was opened");
    return {scratch, PixelForm::kHwc, info_.height, info_.width, info_.channels, number};
  }
  std::string where(uint64_t index) const override {
    return fmt::format("{}, sample {}", images_->path(), index);
  }
  uint64_t memory_bytes() const override { return label_bytes_.size(); }
  uint64_t index_hash() const override {
    return hash_bytes(label_bytes_.data(), label_bytes_.size(), hash_text(pixels_.dtype));
  }

 private:
  int64_t label(uint64_t index) const { return numbers_.integer(index); }
  std::unique_ptr<file::ReadableFile> images_;
  NpyHeader pixels_;
  std::vector<uint8_t> label_bytes_;
  NpyArray numbers_;  // in them
  DatasetInfo info_;
};

// The text between two marks after `key`; empty if there is none.
std::string between(const std::string& text, const std::string& key, char open, char close) {
  const size_t at = text.find(key);
  const size_t first = at == std::string::npos ? at : text.find(open, at + key.size());
  const size_t last = first == std::string::npos ? first : text.find(close, first + 1);
  return last == std::string::npos ? "" : text.substr(first + 1, last - first - 1);
}

}  // namespace

int64_t NpyArray::integer(uint64_t index) const {
  const size_t width = static_cast<size_t>(dtype[1] - '0');
  int64_t value = 0;
  std::memcpy(&value, contents.data() + index * width, width);
  const int unused = static_cast<int>(64 - 8 * width);
  if (dtype[0] == 'u')
    return static_cast<int64_t>(static_cast<uint64_t>(value) << unused >> unused);
  return static_cast<int64_t>(static_cast<uint64_t>(value) << unused) >> unused;
}

NpyHeader parse_npy_header(std::span<const uint8_t> file, uint64_t file_bytes,
                           const std::string& path) {
  const auto fail = [&](const std::string& what) {
    throw CorruptRecord(path, "no .npy array: " + what);
  };
  if (file.size() < 12 || std::memcmp(file.data(), "\x93NUMPY", 6) != 0)
    fail("it begins otherwise");
  const bool old = file[6] == 1;
  uint64_t length = static_cast<uint64_t>(file[8]) | static_cast<uint64_t>(file[9]) << 8;
  if (!old) length |= static_cast<uint64_t>(file[10]) << 16 | static_cast<uint64_t>(file[11]) << 24;
  const size_t start = old ? 10 : 12;
  if (length > file.size() - start || length > 4096) fail("its header is cut off");
  const std::string header(reinterpret_cast<const char*>(file.data() + start), length);
  // {'descr': '|u1', 'fortran_order': False, 'shape': (5, 32, 32, 3), }
  const std::string type = between(header, "'descr':", '\'', '\'');
  const size_t order = header.find("'fortran_order':");
  const bool plain_order = order != std::string::npos &&
                           trim(std::string_view(header).substr(order + 16)).starts_with("False");
  const bool known = type.size() == 3 && (type[0] == '<' || type[0] == '|') &&
                     (type[1] == 'u' || type[1] == 'i') &&
                     (type[2] == '1' || type[2] == '2' || type[2] == '4' || type[2] == '8');
  if (!known || !plain_order || header.find("'shape':") == std::string::npos)
    fail("only whole numbers in C order, little-endian, are read; its header is " +
         header.substr(0, 200));
  NpyHeader array;
  array.dtype = type.substr(1);
  uint64_t bytes = static_cast<uint64_t>(array.dtype[1] - '0');
  for (const std::string& size : split(between(header, "'shape':", '(', ')'), ',')) {
    if (size.empty()) continue;
    const auto number = parse_number(size);
    if (!number || *number < 0 || *number > 0x1p40) fail("an invalid shape");
    const auto one = static_cast<uint64_t>(*number);
    array.shape.push_back(one);
    if (__builtin_mul_overflow(bytes, one, &bytes)) fail("an impossible shape");
  }
  if (array.shape.empty() || array.shape[0] == 0) fail("nothing in it");
  array.offset = start + length;
  array.bytes = bytes;
  if (file_bytes - array.offset != bytes)
    fail(fmt::format("{} bytes of contents, {} expected", file_bytes - array.offset, bytes));
  return array;
}

NpyArray parse_npy(std::span<const uint8_t> file, const std::string& path) {
  NpyHeader header = parse_npy_header(file, file.size(), path);
  return {std::move(header.dtype), std::move(header.shape), file.subspan(header.offset)};
}

std::string npy_header(const std::string& dtype, std::span<const uint64_t> shape) {
  std::string sizes;
  for (const uint64_t size : shape) sizes += fmt::format("{}, ", size);
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   dtype[1] == '1' ? '|' : '<', dtype, sizes);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  return out + header;
}

std::shared_ptr<Dataset> open_npy(const DatasetRequest& request) {
  const std::string images = file::join_path(request.folder, request.split + "_images.npy");
  const std::string labels = file::join_path(request.folder, request.split + "_labels.npy");
  for (const std::string& path : {images, labels}) {
    if (!file::exists(path)) throw NoSuchSplit(fmt::format("npy: there is no {}", path));
  }
  return std::make_shared<NpyDataset>(request, images, labels);
}

}  // namespace horon
