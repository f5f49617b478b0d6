#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/base/error.h"

namespace horon {

// A corrupt record: where it is and what is wrong. Others may be usable.
class CorruptRecord : public Error {
 public:
  CorruptRecord(const std::string& where, const std::string& reason)
      : Error(where + ": " + reason, ExitCode::kData) {}
};

// The folder has no files of the requested split. Others may exist.
class NoSuchSplit : public UsageError {
 public:
  using UsageError::UsageError;
};

// How the bytes of a record represent an image.
enum class PixelForm : uint8_t {
  kHwc,   // u8, row by row, channels interleaved
  kChw,   // u8, one plane per channel
  kJpeg,  // a file
  kPng,   // a file
};

// One sample as stored; does not own its bytes.
struct Record {
  std::span<const uint8_t> bytes;
  PixelForm form = PixelForm::kHwc;
  int height = 0;  // of kHwc and kChw
  int width = 0;
  int channels = 0;
  int64_t label = 0;  // [0, classes)
};

constexpr int kMostClasses = 1'000'000;

// Properties of a whole data set.
struct DatasetInfo {
  std::string name;   // "cifar10"
  std::string split;  // "train"
  int height = 0;     // 0: images differ
  int width = 0;
  int channels = 3;
  int classes = 0;
  std::vector<std::string> class_names;  // empty: numbers only
};

// A numbered set of labelled images. Thread-safe.
//   auto set = open_dataset({.name = "cifar10", .folder = "cifar"});
//   const Record record = set->read(0, scratch);
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  virtual uint64_t size() const = 0;
  // Reads sample `index` in [0, size()). May store the bytes in `scratch`; they are valid until it
  // changes. CorruptRecord if the record is damaged, IoError if the storage fails.
  virtual Record read(uint64_t index, std::vector<uint8_t>& scratch) const = 0;
  // A hint that the sample will be read soon.
  virtual void expect(uint64_t) const {}
  // "FILE, record 17 at offset 1234"
  virtual std::string where(uint64_t index) const = 0;
  // Sizes of ranges of samples that are best read together; empty: no preference.
  virtual std::vector<uint64_t> chunks() const { return {}; }
  // What was lost on opening, "FILE, record 17 at offset 1234: reason": ends of files whose samples
  // cannot be located and have no numbers. Each counts as one corrupt record.
  virtual std::vector<std::string> losses() const { return {}; }
  // Memory in use, in bytes.
  virtual uint64_t memory_bytes() const { return 0; }
  // A hash of the names (relative to the folder) and sizes of its files or records, in the order of
  // the samples, and of available labels; does not read pixels.
  virtual uint64_t index_hash() const { return 0; }
};

// Equal for processes that opened the same data, wherever its files are: index_hash() combined with
// the number of samples, the classes and the shape. Cheap: uses only what opening has found.
uint64_t index_digest(const Dataset& set);

// Which data set to open.
struct DatasetRequest {
  std::string name;  // "cifar10", "image_folder", ...
  std::string folder;
  std::string split = "train";    // "train", "validation", "test"
  uint64_t validation_split = 0;  // number of samples taken from the training set
  uint64_t samples = 0;           // for generated data; 0: its default
  uint64_t seed = 0;              // for generated data
  int image_size = 0;             // for synthetic data; 0: 224
  int classes = 0;                // for synthetic data, and if the files do not state it
};

// A subset of another data set: `indices`, in their order.
std::shared_ptr<Dataset> make_subset(std::shared_ptr<Dataset> of, std::vector<uint64_t> indices,
                                     const std::string& split);

}  // namespace horon
