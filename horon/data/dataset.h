#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horon/base/error.h"
#include "horon/data/picture.h"

namespace horon {

// A record that cannot be used: where it is and what is wrong. Others may be fine.
class CorruptRecord : public Error {
 public:
  CorruptRecord(const std::string& where, const std::string& reason)
      : Error(where + ": " + reason, ExitCode::kData) {}
};

// The folder has no files of the split that was asked for. Others may be there.
class NoSuchSplit : public UsageError {
 public:
  using UsageError::UsageError;
};

enum class PixelForm : uint8_t {
  kHwc,   // u8, row by row, channels together
  kChw,   // u8, one plane a channel
  kJpeg,  // a file
  kPng,   // a file
};

// One sample as it is stored.
struct Record {
  std::span<const uint8_t> bytes;
  PixelForm form = PixelForm::kHwc;
  int height = 0;  // of kHwc and kChw
  int width = 0;
  int channels = 0;
  int64_t label = 0;  // [0, classes)
};

struct DatasetInfo {
  std::string name;   // "cifar10"
  std::string split;  // "train"
  int height = 0;     // 0: pictures differ
  int width = 0;
  int channels = 3;
  int classes = 0;
  std::vector<std::string> class_names;  // empty: numbers only
};

// A numbered set of labelled pictures. Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  virtual uint64_t size() const = 0;
  // `scratch` may be used for the bytes; they are valid until it changes. CorruptRecord if the
  // record is damaged, IoError if the storage fails.
  virtual Record read(uint64_t index, std::vector<uint8_t>& scratch) const = 0;
  // It will be read soon: a hint.
  virtual void expect(uint64_t) const {}
  // "FILE, record 17 at offset 1234"
  virtual std::string where(uint64_t index) const = 0;
  // Sizes of runs of samples that are best read together; empty: it does not matter.
  virtual std::vector<uint64_t> chunks() const { return {}; }
  // What was lost when it was opened, "FILE, record 17 at offset 1234: reason": ends of files whose
  // samples cannot be found any more, so they have no numbers. Each counts as one corrupt record.
  virtual std::vector<std::string> losses() const { return {}; }
  // What it keeps in memory.
  virtual uint64_t memory_bytes() const { return 0; }
  // Of the names (without the folder that it was opened in) and sizes of its files or records, in
  // the order of the samples, and of labels that are at hand; pixels are not read for it.
  virtual uint64_t index_hash() const { return 0; }
};

// Equal for processes that opened the same data, wherever its files are: the hash above with the
// number of samples, the classes and the shape. Cheap: what opening has found is looked at once.
uint64_t index_digest(const Dataset& set);

struct DatasetRequest {
  std::string name;  // "cifar10", "image_folder", ...
  std::string folder;
  std::string split = "train";    // "train", "validation", "test"
  uint64_t validation_split = 0;  // so many samples are cut from the training set
  uint64_t samples = 0;           // of made-up data; 0: its default
  uint64_t seed = 0;              // of made-up data
  int image_size = 0;             // of synthetic data; 0: 224
  int classes = 0;                // of synthetic data and where the files do not say
};

// UsageError for unknown names and splits, NoSuchSplit for one that is not there, IoError and
// CorruptRecord for files.
std::shared_ptr<Dataset> open_dataset(const DatasetRequest& request);
// name -> one line about it
std::map<std::string, std::string> dataset_names();

// The size that all pictures have; nothing if two differ. Where the set does not say it, headers of
// up to 1024 pictures are read, evenly spread over the set (so the same ones for every rank), and
// no more after two that differ. Damaged ones are passed over.
std::optional<PictureSize> common_size(const Dataset& set);
// set.info(), with that size if there is one.
DatasetInfo info_with_size(const Dataset& set);

// labels.txt: "0: cat" or a name a line, in order. CorruptRecord for others, or a name twice.
std::vector<std::string> read_class_names(const std::string& path);

// Some of another data set's samples: `indices`, in their order.
std::shared_ptr<Dataset> make_subset(std::shared_ptr<Dataset> of, std::vector<uint64_t> indices,
                                     const std::string& split);

// Formats, by one function each (formats.cc).
std::shared_ptr<Dataset> open_cifar(const DatasetRequest& request, int classes);
std::shared_ptr<Dataset> open_mnist(const DatasetRequest& request);
std::shared_ptr<Dataset> open_tfrecord(const DatasetRequest& request);
std::shared_ptr<Dataset> open_image_folder(const DatasetRequest& request);
std::shared_ptr<Dataset> open_npy(const DatasetRequest& request);
std::shared_ptr<Dataset> make_shapes10(const DatasetRequest& request);
std::shared_ptr<Dataset> make_synthetic(const DatasetRequest& request);

// Samples that all lie in memory one after the other: label and pixels apart.
struct PackedPictures {
  DatasetInfo info;
  PixelForm form = PixelForm::kHwc;
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  std::vector<std::pair<uint64_t, std::string>> files;  // first index of each, for where()
};
std::shared_ptr<Dataset> make_packed(PackedPictures pictures);

}  // namespace horon
