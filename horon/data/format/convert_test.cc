#include "horon/data/format/convert.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "horon/base/fd.h"
#include "horon/data/format/example.h"
#include "horon/data/format/tfrecord.h"
#include "horon/data/image/augment.h"
#include "horon/data/image/decode.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"
#include "horon/data/open_dataset.h"
#include "horon/data/parallel.h"
#include "horon/file/file.h"

namespace horon {
namespace {

// Each sample is an image of its own; one may be damaged.
class Numbered final : public Dataset {
 public:
  Numbered(uint64_t size, int height, int width, int channels, PixelForm form = PixelForm::kHwc)
      : size_(size), form_(form) {
    info_ = {"numbered", "train", height, width, channels, 10, {}};
  }
  const DatasetInfo& info() const override { return info_; }
  uint64_t size() const override { return size_; }
  Record read(uint64_t index, std::vector<uint8_t>& scratch) const override {
    if (index == damaged_) throw CorruptRecord(where(index), "damaged");
    Picture picture{info_.height, info_.width, info_.channels, {}};
    for (int i = 0; i < info_.height * info_.width * info_.channels; ++i)
      picture.pixels.push_back(static_cast<uint8_t>(static_cast<uint64_t>(i) * (index + 3) / 7));
    const std::string bytes = form_ == PixelForm::kJpeg  ? encode_jpeg(picture)
                              : form_ == PixelForm::kPng ? encode_png(picture)
                                                         : "";
    scratch.assign(bytes.begin(), bytes.end());
    if (bytes.empty()) scratch = picture.pixels;
    return {scratch,     form_,          info_.height,
            info_.width, info_.channels, static_cast<int64_t>(index % 10)};
  }
  std::string where(uint64_t index) const override { return fmt::format("sample {}", index); }

  DatasetInfo info_;
  uint64_t damaged_ = UINT64_MAX;

 private:
  uint64_t size_;
  PixelForm form_;
};

class Conversions : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  ConvertOptions options(const std::string& format, const std::string& folder, int threads = 3) {
    ConvertOptions wanted;
    wanted.format = format;
    wanted.folder = at(folder);
    wanted.threads = threads;
    return wanted;
  }
  std::shared_ptr<Dataset> open(const std::string& name, const std::string& folder) const {
    DatasetRequest request;
    request.name = name;
    request.folder = at(folder);
    return open_dataset(request);
  }
  // Name -> contents of everything in a folder.
  std::map<std::string, std::string> contents(const std::string& folder) const {
    std::map<std::string, std::string> all;
    for (const file::FileInfo& one : file::list_tree(at(folder)))
      if (!one.path.ends_with(".index"))
        all[one.path.substr(at(folder).size())] = file::read(one.path);
    return all;
  }
  void expect_same_pixels(const Dataset& a, const Dataset& b) {
    ASSERT_EQ(a.size(), b.size());
    std::vector<uint8_t> scratch;
    Picture one;
    Picture two;
    for (uint64_t i = 0; i < a.size(); ++i) {
      Record record = a.read(i, scratch);
      const int64_t label = record.label;
      decode_record(record, one);
      record = b.read(i, scratch);
      EXPECT_EQ(record.label, label);
      decode_record(record, two);
      ASSERT_EQ(one.width, two.width);
      ASSERT_EQ(one.channels, two.channels);
      ASSERT_EQ(one.pixels, two.pixels) << i;
    }
  }
  TempFolder folder_;
};

const std::vector<std::string> kFormats = {"tfrecord", "tfrecord_raw", "image_folder", "npy",
                                           "cifar10"};

TEST_F(Conversions, AreTheSameOnAnyNumberOfThreads) {
  const Numbered set(101, 32, 32, 3);
  for (const std::string& format : kFormats) {
    convert_dataset(set, options(format, format + "1", 1));
    convert_dataset(set, options(format, format + "8", 8));
    const auto one = contents(format + "1");
    EXPECT_GT(one.size(), 1U);
    EXPECT_TRUE(one == contents(format + "8")) << format;
  }
}

TEST_F(Conversions, KeepTheShape) {
  for (const int channels : {1, 3}) {
    const Numbered set(20, 50, 200, channels);
    const std::string name = fmt::format("{}", channels);
    convert_dataset(set, options("tfrecord_raw", "raw" + name));
    const auto back = open("tfrecord", "raw" + name);
    EXPECT_EQ(back->info().height, 50);
    EXPECT_EQ(back->info().width, 200);
    EXPECT_EQ(back->info().channels, channels);
    EXPECT_EQ(back->info().classes, 10);
    expect_same_pixels(set, *back);
    convert_dataset(set, options("npy", "npy" + name));
    expect_same_pixels(set, *open("npy", "npy" + name));
  }
}

TEST_F(Conversions, ImageFilesConvertToCifar) {
  for (const PixelForm form : {PixelForm::kJpeg, PixelForm::kPng}) {
    const Numbered set(30, 32, 32, 3, form);
    const std::string folder = form == PixelForm::kJpeg ? "jpeg" : "png";
    convert_dataset(set, options("cifar10", folder));
    expect_same_pixels(set, *open("cifar10", folder));
  }
  const Numbered grey(30, 32, 32, 1);
  convert_dataset(grey, options("cifar10", "grey"));
  std::vector<uint8_t> scratch;
  const auto back = open("cifar10", "grey");
  const Record record = back->read(7, scratch);
  EXPECT_EQ(record.bytes[1000], record.bytes[1024 + 1000]);
  EXPECT_EQ(record.bytes[1000], record.bytes[2048 + 1000]);
  EXPECT_THROW(convert_dataset(Numbered(30, 32, 33, 3), options("cifar10", "large")), UsageError);
}

TEST_F(Conversions, WriteTheColourSpaceOfTheImages) {
  const auto first = [&](const Dataset& set, const std::string& folder) {
    convert_dataset(set, options("tfrecord", folder));
    RecordReader reader(file::open(at(folder + "/train-00000-of-00001")));
    std::span<const uint8_t> record;
    EXPECT_TRUE(reader.next(record));
    const Example example = parse_example(record);
    return fmt::format("{} {}", example.at("image/colorspace").bytes[0],
                       example.at("image/channels").integers[0]);
  };
  EXPECT_EQ(first(Numbered(10, 28, 28, 1), "grey"), "Grayscale 1");
  EXPECT_EQ(first(Numbered(10, 28, 28, 3), "colour"), "RGB 3");
  EXPECT_EQ(first(Numbered(10, 28, 28, 1, PixelForm::kJpeg), "file"), "Grayscale 1");
}

// Interrupted after some samples, they go on behind them; what comes out is the same.
TEST_F(Conversions, ResumeWhereTheyWereInterrupted) {
  for (const std::string& format : kFormats) {
    const uint64_t size = format == "image_folder" ? 50 : 2500;
    const Numbered set(size, 32, 32, 3);
    convert_dataset(set, options(format, format + " at once"));
    ConvertOptions some = options(format, format);
    std::stop_source stop;
    some.stop = stop.get_token();
    some.progress = [&](uint64_t done, uint64_t) {
      if (done >= size * 4 / 5) stop.request_stop();
    };
    EXPECT_THROW(convert_dataset(set, some), Error);
    std::map<std::string, int64_t> times;
    for (const file::FileInfo& one : file::list_tree(at(format))) times[one.path] = one.modified_ns;

    ConvertOptions again = options(format, format, 1);
    std::vector<uint64_t> steps = {0};
    again.progress = [&](uint64_t done, uint64_t) { steps.push_back(done); };
    convert_dataset(set, again);
    EXPECT_EQ(steps.back(), size) << format;
    uint64_t kept = 0;  // samples that it did not have to do one by one, or in fours
    for (size_t i = 1; i < steps.size(); ++i)
      if (steps[i] - steps[i - 1] > 4) kept += steps[i] - steps[i - 1];
    if (format != "image_folder") {
      EXPECT_GE(kept, 1000U) << format;
    }
    for (const auto& [path, time] : times) EXPECT_EQ(file::stat(path)->modified_ns, time) << path;
    EXPECT_TRUE(contents(format + " at once") == contents(format)) << format;
  }
}

// A sample that cannot be used ends it, whoever waits for it.
TEST_F(Conversions, EndWithADamagedSample) {
  Numbered set(400, 32, 32, 3);
  for (const uint64_t damaged : {3U, 201U, 398U}) {
    set.damaged_ = damaged;
    for (const std::string& format : kFormats)
      EXPECT_THROW(convert_dataset(set, options(format, fmt::format("{}{}", format, damaged), 8)),
                   CorruptRecord);
  }
}

TEST_F(Conversions, AnImpossibleOneLeavesTheFolderUsable) {
  const Numbered set(20, 40, 40, 3);
  EXPECT_THROW(convert_dataset(set, options("cifar10", "here")), UsageError);
  EXPECT_NO_THROW(convert_dataset(set, options("npy", "here")));
  EXPECT_THROW(convert_dataset(set, options("tfrecord", "here")), UsageError);  // that is there now
  ConvertOptions many = options("tfrecord", "many");
  many.files = 21;
  EXPECT_THROW(convert_dataset(set, many), UsageError);
}

TEST_F(Conversions, NamesOfClassesStayInTheFolder) {
  Numbered set(10, 4, 4, 3);
  for (const char* name : {"../out", "..", "", "a/b", "/tmp/x"}) {
    set.info_.class_names.assign(10, "fine");
    for (size_t i = 0; i < 10; ++i) set.info_.class_names[i] += std::to_string(i);
    set.info_.class_names[4] = name;
    EXPECT_THROW(convert_dataset(set, options("image_folder", "f")), UsageError) << name;
  }
  EXPECT_FALSE(file::exists(at("out")));
}

// Two splits in one folder share the classes, even if one has fewer.
TEST_F(Conversions, SplitsShareTheirClasses) {
  Numbered set(20, 8, 8, 3);
  ConvertOptions train = options("tfrecord", "both");
  convert_dataset(set, train);
  set.info_.classes = 7;
  set.damaged_ = UINT64_MAX;
  ConvertOptions test = options("tfrecord", "both");
  test.split = "test";
  convert_dataset(set, test);
  EXPECT_EQ(open("tfrecord", "both")->info().classes, 10);
  set.info_.class_names.assign(7, "x");
  for (size_t i = 0; i < 7; ++i) set.info_.class_names[i] += std::to_string(i);
  test.split = "validation";
  EXPECT_THROW(convert_dataset(set, test), UsageError);  // other names
}

TEST(Blocks, CoverTheRangeOnceAndPassErrorsOn) {
  std::vector<int> times(1000);
  for_blocks({7, 1000}, 13, 5, [&]() -> BlockBody {
    return [&](const Range& block) {
      for (uint64_t i = block.first; i < block.last; ++i) ++times[i];
    };
  });
  for (uint64_t i = 0; i < 1000; ++i) ASSERT_EQ(times[i], i < 7 ? 0 : 1) << i;
  EXPECT_THROW(for_blocks({0, 100}, 1, 4,
                          [&]() -> BlockBody {
                            return [&](const Range& block) {
                              if (block.first == 50) throw IoError("x");
                            };
                          }),
               IoError);
  for_blocks({5, 5}, 1, 4, [&]() -> BlockBody { return [](const Range&) { FAIL(); }; });
}

}  // namespace
}  // namespace horon
