#include "horon/data/format/cifar.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/data/format/inflate.h"
#include "horon/data/format/packed.h"
#include "horon/data/format/pickle.h"
#include "horon/data/image/picture.h"
#include "horon/file/file.h"

namespace horon {
namespace {

constexpr uint64_t kPixels = uint64_t{3} * 32 * 32;
constexpr uint64_t kMostBytes = 1U << 30;

const std::vector<std::string> kCifar10Names = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                "dog",      "frog",       "horse", "ship", "truck"};

struct CifarFiles {
  std::vector<std::string> names;  // without ".bin"
  std::vector<std::string> folders;
};

CifarFiles cifar_files(int classes, bool train) {
  if (classes == 100)
    return {{train ? "train" : "test"}, {"", "cifar-100-binary", "cifar-100-python"}};
  CifarFiles files{{}, {"", "cifar-10-batches-bin", "cifar-10-batches-py"}};
  if (!train) return {{"test_batch"}, files.folders};
  for (int i = 1; i <= 5; ++i) files.names.push_back(fmt::format("data_batch_{}", i));
  return files;
}

// Records of one or two label bytes and the planes; the last label counts.
void add_binary(const std::string& path, int classes, PackedPictures& to) {
  const std::vector<uint8_t> bytes = read_inflated(path, kMostBytes);
  const size_t labels = classes == 100 ? 2 : 1;
  const size_t record = labels + kPixels;
  if (bytes.empty() || bytes.size() % record != 0)
    throw CorruptRecord(path, fmt::format("{} bytes are not a whole number of records of {}",
                                          bytes.size(), record));
  for (size_t at = 0; at < bytes.size(); at += record) {
    to.labels.push_back(bytes[at + labels - 1]);
    to.pixels.insert(to.pixels.end(), bytes.begin() + static_cast<ptrdiff_t>(at + labels),
                     bytes.begin() + static_cast<ptrdiff_t>(at + record));
  }
}

void add_python(const std::string& path, int classes, PackedPictures& to) {
  try {
    const Pickle pickle = parse_pickle(read_inflated(path, kMostBytes));
    const auto* batch = pickle.root->as<PickleDict>();
    const PickleValue* data = batch != nullptr ? batch->find("data") : nullptr;
    const PickleValue* labels =
        batch != nullptr ? batch->find(classes == 100 ? "fine_labels" : "labels") : nullptr;
    const auto* pixels = data != nullptr ? data->as<PickleArray>() : nullptr;
    const auto* list = labels != nullptr ? labels->as<PickleList>() : nullptr;
    if (pixels == nullptr || list == nullptr || pixels->dtype != "u1" ||
        pixels->bytes.size() != list->items.size() * kPixels)
      throw Error("no CIFAR batch: 'data' (u8) and 'labels' expected", ExitCode::kData);
    for (const PickleValue* label : list->items) {
      const auto* number = label->as<int64_t>();
      if (number == nullptr) throw Error("a label that is no number", ExitCode::kData);
      to.labels.push_back(*number);
    }
    to.pixels.insert(to.pixels.end(), pixels->bytes.begin(), pixels->bytes.end());
  } catch (const CorruptRecord&) {
    throw;
  } catch (const Error& error) {
    throw CorruptRecord(path, error.what());
  }
}

// Where the first of the files is: directly in the folder, or in the one that the archive makes.
std::string find_folder(const DatasetRequest& request, const CifarFiles& files, bool& binary) {
  for (const std::string& folder : files.folders) {
    const std::string base =
        folder.empty() ? request.folder : file::join_path(request.folder, folder);
    for (const bool try_binary : {true, false}) {
      binary = try_binary;
      if (file::exists(file::join_path(base, files.names.front() + (binary ? ".bin" : ""))))
        return base;
    }
  }
  throw NoSuchSplit(fmt::format(
      "{}: no {}.bin and no {} in '{}'; `horon data download {} --data_dir DIR` fetches it",
      request.name, files.names.front(), files.names.front(), request.folder, request.name));
}

uint32_t big_endian(const std::vector<uint8_t>& bytes, size_t at) {
  return static_cast<uint32_t>(bytes[at]) << 24 | static_cast<uint32_t>(bytes[at + 1]) << 16 |
         static_cast<uint32_t>(bytes[at + 2]) << 8 | bytes[at + 3];
}

// idx: two zero bytes, type (8: u8), dimensions, sizes, contents.
std::vector<uint8_t> read_idx(const std::string& path, std::vector<uint32_t>& shape) {
  std::vector<uint8_t> bytes = read_inflated(path, kMostBytes);
  const size_t dimensions = bytes.size() > 4 ? bytes[3] : 0;
  if (dimensions < 1 || dimensions > 3 || bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 ||
      bytes.size() < 4 + 4 * dimensions)
    throw CorruptRecord(path, "no idx file of bytes");
  uint64_t total = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    shape.push_back(big_endian(bytes, 4 + 4 * i));
    if (shape.back() == 0 || shape.back() > kMostBytes / total)
      throw CorruptRecord(path, "invalid sizes");
    total *= shape.back();
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(4 + 4 * dimensions));
  if (bytes.size() != total)
    throw CorruptRecord(path,
                        fmt::format("{} bytes of contents, {} expected", bytes.size(), total));
  return bytes;
}

std::string find_idx(const DatasetRequest& request, const std::string& stem) {
  for (const std::string& folder : {request.folder, file::join_path(request.folder, "MNIST/raw")}) {
    for (const char* ending : {"", ".gz"}) {
      const std::string path = file::join_path(folder, stem + ending);
      if (file::exists(path)) return path;
    }
  }
  throw NoSuchSplit(fmt::format(
      "mnist: no {} (or .gz) in '{}'; `horon data download mnist --data_dir DIR` fetches it", stem,
      request.folder));
}

}  // namespace

std::shared_ptr<Dataset> open_cifar(const DatasetRequest& request, int classes) {
  const CifarFiles files = cifar_files(classes, request.split == "train");
  bool binary = true;
  const std::string folder = find_folder(request, files, binary);
  PackedPictures pictures;
  pictures.info = {request.name,
                   request.split,
                   32,
                   32,
                   3,
                   classes,
                   classes == 10 ? kCifar10Names : std::vector<std::string>()};
  pictures.form = PixelForm::kChw;
  for (const std::string& name : files.names) {
    const std::string path = file::join_path(folder, name + (binary ? ".bin" : ""));
    pictures.files.emplace_back(pictures.labels.size(), path);
    binary ? add_binary(path, classes, pictures) : add_python(path, classes, pictures);
  }
  return make_packed(std::move(pictures));
}

std::shared_ptr<Dataset> open_mnist(const DatasetRequest& request) {
  const std::string stem = request.split == "train" ? "train" : "t10k";
  const std::string images = find_idx(request, stem + "-images-idx3-ubyte");
  const std::string labels = find_idx(request, stem + "-labels-idx1-ubyte");
  PackedPictures pictures;
  std::vector<uint32_t> shape;
  pictures.pixels = read_idx(images, shape);
  std::vector<uint32_t> label_shape;
  const std::vector<uint8_t> numbers = read_idx(labels, label_shape);
  if (shape.size() != 3 || label_shape.size() != 1 || shape[0] != label_shape[0])
    throw CorruptRecord(labels, "different numbers of labels and images");
  try {
    check_picture_size(shape[1], shape[2]);
  } catch (const Error& error) {
    throw CorruptRecord(images, error.what());
  }
  pictures.labels.assign(numbers.begin(), numbers.end());
  pictures.info = {
      "mnist", request.split, static_cast<int>(shape[1]), static_cast<int>(shape[2]), 1, 10, {}};
  pictures.files = {{0, images}};
  return make_packed(std::move(pictures));
}

}  // namespace horon
