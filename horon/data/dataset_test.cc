// What data sets tell of themselves: what is lost, what they have in common, sizes, names.
#include "horon/data/dataset.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "horon/base/fd.h"
#include "horon/data/format/convert.h"
#include "horon/data/format/example.h"
#include "horon/data/format/inflate.h"
#include "horon/data/format/npy.h"
#include "horon/data/format/tfrecord.h"
#include "horon/data/image/augment.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"
#include "horon/data/open_dataset.h"
#include "horon/data/survey.h"
#include "horon/file/file.h"

namespace horon {
namespace {

class Opened : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  DatasetRequest request(const std::string& name, const std::string& folder = "") const {
    DatasetRequest wanted;
    wanted.name = name;
    wanted.folder = folder.empty() ? folder_.path() : at(folder);
    return wanted;
  }
  std::shared_ptr<Dataset> open(const std::string& name, const std::string& folder = "") const {
    return open_dataset(request(name, folder));
  }
  static Picture picture(int height, int width, uint8_t level = 100) {
    return {height, width, 3, std::vector<uint8_t>(static_cast<size_t>(height * width * 3), level)};
  }
  TempFolder folder_;
  std::vector<uint8_t> scratch_;
};

std::string example(int label) {
  return ExampleBuilder()
      .add_bytes("image", std::string(3072, static_cast<char>(label)))
      .add_integer("label", label)
      .build();
}

// A file of ten records with labels 0 to 9, as bytes; `compressed`: as gzip.
std::string ten_records(const std::string& path) {
  RecordWriter writer(path);
  for (int i = 0; i < 10; ++i) writer.write(example(i));
  writer.commit();
  return file::read(path);
}
std::string gzipped(const std::string& bytes) {
  Deflater deflater(true);
  std::string packed(deflater.write(bytes));
  return packed += deflater.finish();
}

class DamagedRecords : public Opened {
 protected:
  void SetUp() override {
    good_ = ten_records(at("train-00000-of-00002"));
    ten_records(at("train-00001-of-00002"));
    each_ = good_.size() / 10;
  }
  // The first of the two files becomes this.
  std::shared_ptr<Dataset> with(const std::string& bytes) {
    file::write(at("train-00000-of-00002"), bytes);
    return open("tfrecord");
  }
  std::string flipped(size_t place) const {
    std::string bad = good_;
    bad[place] = static_cast<char>(bad[place] ^ 1);
    return bad;
  }
  // Labels of all samples; -1: a corrupt record.
  std::vector<int64_t> labels(const Dataset& set) {
    std::vector<int64_t> found;
    for (uint64_t i = 0; i < set.size(); ++i) {
      try {
        found.push_back(set.read(i, scratch_).label);
      } catch (const CorruptRecord&) {
        found.push_back(-1);
      }
    }
    return found;
  }
  std::string good_;
  size_t each_ = 0;
};

// The end of one file is lost; the rest of the data set is there.
TEST_F(DamagedRecords, ADamagedLengthLosesTheRestOfItsFile) {
  for (const bool compressed : {false, true}) {
    for (const auto& [bytes, kept] :
         {std::pair(flipped(3 * each_), 3), std::pair(good_.substr(0, 7 * each_ + 100), 7),
          std::pair(good_.substr(0, 7 * each_ + 5), 7), std::pair(flipped(0), 0)}) {
      const auto set = with(compressed ? gzipped(bytes) : bytes);
      std::vector<int64_t> want;
      for (int i = 0; i < kept; ++i) want.push_back(i);
      for (int i = 0; i < 10; ++i) want.push_back(i);
      EXPECT_EQ(labels(*set), want);
      ASSERT_EQ(set->losses().size(), 1U);
      const std::string line = set->losses()[0];
      EXPECT_NE(line.find(fmt::format("train-00000-of-00002, record {} at offset {}: ", kept,
                                      static_cast<size_t>(kept) * each_)),
                std::string::npos)
          << line;
      EXPECT_NE(line.find("the rest of the file is lost"), std::string::npos) << line;
      const VerifyReport report = verify_dataset(*set, 2, {});
      EXPECT_EQ(report.lost, 1U);
      EXPECT_EQ(report.bad, 0U);
      EXPECT_EQ(report.problems.front(), line);
      EXPECT_THROW(measure_dataset(*set, 1, {}), Error);
    }
  }
  EXPECT_EQ(with(good_)->losses(), std::vector<std::string>());
}

TEST_F(DamagedRecords, DamagedContentsAreOneRecordCompressedOrNot) {
  std::string two = flipped(3 * each_ + 500);
  two[each_ - 1] = static_cast<char>(two[each_ - 1] ^ 8);
  for (const bool compressed : {false, true}) {
    const auto set = with(compressed ? gzipped(two) : two);
    EXPECT_EQ(labels(*set),
              (std::vector<int64_t>{-1, 1, 2, -1, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_TRUE(set->losses().empty());
    try {
      set->read(3, scratch_);
      FAIL();
    } catch (const CorruptRecord& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("at offset {}", 3 * each_)),
                std::string::npos)
          << error.what();
    }
  }
}

TEST_F(DamagedRecords, ADamagedCompressionLosesTheRestOfItsFile) {
  const std::string packed = gzipped(good_);
  std::string bad = packed;
  bad[bad.size() - 6] = static_cast<char>(bad[bad.size() - 6] ^ 1);  // gzip's own checksum
  for (const std::string& bytes : {packed.substr(0, packed.size() - 4), bad}) {
    const auto set = with(bytes);
    EXPECT_EQ(set->size(), 20U);  // all were good, but nobody could be sure
    ASSERT_EQ(set->losses().size(), 1U);
    EXPECT_NE(set->losses()[0].find("train-00000-of-00002"), std::string::npos);
    EXPECT_NE(set->losses()[0].find("compressed data is"), std::string::npos);
  }
  const auto set = with(packed.substr(0, 20));
  EXPECT_EQ(set->size(), 10U);
  EXPECT_EQ(set->losses().size(), 1U);
}

TEST_F(DamagedRecords, NothingThatIsGoodIsAnError) {
  file::write(at("train-00001-of-00002"), flipped(0));
  EXPECT_THROW(with(flipped(2)), Error);
}

TEST_F(Opened, AnArrayThatIsCutMeanwhileIsAnError) {
  const std::array<uint64_t, 4> shape = {100, 32, 32, 3};
  const std::array<int64_t, 100> labels = {};
  file::write(at("train_images.npy"), npy_header("u1", shape) + std::string(100 * 3072, 'x'));
  file::write(at("train_labels.npy"),
              npy_header("i8", std::span(shape).first(1)) +
                  std::string(reinterpret_cast<const char*>(labels.data()), sizeof(labels)));
  const auto set = open("npy");
  EXPECT_EQ(set->read(99, scratch_).bytes[3071], 'x');
  std::filesystem::resize_file(at("train_images.npy"), 50 * 3072);
  EXPECT_EQ(set->read(3, scratch_).bytes[0], 'x');
  EXPECT_THROW(set->read(99, scratch_), CorruptRecord);
}

TEST_F(Opened, RawRecordsHaveTheirShape) {
  const auto write = [&](const std::vector<std::string>& records) {
    RecordWriter writer(at("train.tfrecords"));
    for (const std::string& one : records) writer.write(one);
    writer.commit();
  };
  const auto raw = [](size_t bytes, int height, int width, int channels) {
    return ExampleBuilder()
        .add_bytes("image", std::string(bytes, 'p'))
        .add_integer("label", 1)
        .add_integer("height", height)
        .add_integer("width", width)
        .add_integer("channels", channels)
        .build();
  };
  write({raw(3 * 50 * 200, 50, 200, 3), raw(3 * 50 * 200, 50, 200, 3)});
  auto set = open("tfrecord");
  EXPECT_EQ(set->read(0, scratch_).width, 200);
  EXPECT_EQ(set->read(0, scratch_).height, 50);
  EXPECT_EQ(set->info().width, 200);
  write({raw(64, 8, 8, 1), raw(64, 8, 8, 1)});
  EXPECT_EQ(open("tfrecord")->info().channels, 1);
  write({raw(64, 8, 8, 1), raw(192, 8, 8, 3), raw(64, 4, 16, 1)});
  set = open("tfrecord");
  EXPECT_EQ(set->info().height, 0);    // they differ
  EXPECT_EQ(set->info().channels, 3);  // nothing is dropped
  write({example(1), raw(64, 8, 9, 1), raw(64, -8, -8, 1), raw(64, 0, 8, 1), raw(128, 8, 8, 2)});
  set = open("tfrecord");
  for (uint64_t i = 1; i < 5; ++i) EXPECT_THROW(set->read(i, scratch_), CorruptRecord) << i;
}

TEST_F(Opened, RecordsHaveTheClassesOfLabelsTxt) {
  ten_records(at("train.tfrecords"));
  EXPECT_EQ(open("tfrecord")->info().classes, 10);
  file::write(at("labels.txt"), "0: a\n1: b\n2: c\n");
  EXPECT_EQ(open("tfrecord")->info().classes, 3);
  EXPECT_EQ(open("tfrecord")->info().class_names[2], "c");
  EXPECT_THROW(open("tfrecord")->read(3, scratch_), CorruptRecord);
  DatasetRequest told = request("tfrecord");
  told.classes = 10;
  EXPECT_EQ(open_dataset(told)->info().classes, 10);
  file::write(at("labels.txt"), "0: a\n1: b\n2: a\n");
  EXPECT_THROW(open("tfrecord"), CorruptRecord);
}

// --- what ranks must have in common

TEST_F(Opened, DigestsOfFoldersKnowNamesAndSizesButNotPlaces) {
  const auto make = [&](const std::string& folder) {
    for (const char* name : {"ant/1.png", "ant/2.png", "bee/3.png"})
      file::write(at(folder + "/train/" + name), encode_png(picture(4, 4)));
    return index_digest(*open("image_folder", folder));
  };
  const uint64_t digest = make("here");
  EXPECT_EQ(make("somewhere/else"), digest);
  file::write(at("here/train/ant/2.png"), encode_png(picture(50, 50)));
  const uint64_t other_size = index_digest(*open("image_folder", "here"));
  EXPECT_NE(other_size, digest);
  make("here");
  file::rename(at("here/train/ant/2.png"), at("here/train/ant/0.png"));
  EXPECT_NE(index_digest(*open("image_folder", "here")), digest);
  file::rename(at("here/train/ant/0.png"), at("here/train/ant/2.png"));
  EXPECT_EQ(index_digest(*open("image_folder", "here")), digest);
  file::write(at("here/labels.txt"), "bee\nant\n");  // other numbers
  EXPECT_NE(index_digest(*open("image_folder", "here")), digest);
  file::remove(at("here/labels.txt"));
  file::rename(at("here/train/bee/3.png"), at("here/train/ant/3.png"));  // another label
  EXPECT_NE(index_digest(*open("image_folder", "here")), digest);
}

TEST_F(Opened, DigestsDependOnSizeSeedAndSplit) {
  const auto shapes = [&](uint64_t samples, uint64_t seed, uint64_t held_out = 0) {
    DatasetRequest wanted = request("shapes10");
    wanted.samples = samples;
    wanted.seed = seed;
    wanted.validation_split = held_out;
    return index_digest(*open_dataset(wanted));
  };
  EXPECT_EQ(shapes(100, 1), shapes(100, 1));
  EXPECT_NE(shapes(100, 1), shapes(100, 2));
  EXPECT_NE(shapes(100, 1), shapes(101, 1));
  EXPECT_NE(shapes(100, 1), shapes(100, 1, 10));
  EXPECT_NE(shapes(101, 1, 1), shapes(100, 1));

  std::string bytes = ten_records(at("a/train.tfrecords"));
  ten_records(at("b/train.tfrecords"));
  const uint64_t digest = index_digest(*open("tfrecord", "a"));
  EXPECT_EQ(index_digest(*open("tfrecord", "b")), digest);
  file::rename(at("b/train.tfrecords"), at("b/train-x.tfrecords"));
  EXPECT_NE(index_digest(*open("tfrecord", "b")), digest);
  RecordWriter others(at("c/train.tfrecords"));  // as many, of other lengths
  for (int i = 0; i < 10; ++i)
    others.write(ExampleBuilder()
                     .add_bytes("image", std::string(3072, 'x'))
                     .add_bytes("more", "")
                     .add_integer("label", i)
                     .build());
  others.commit();
  EXPECT_NE(index_digest(*open("tfrecord", "c")), digest);
  file::write(at("a/train.tfrecords"), bytes.substr(0, bytes.size() - 10));  // one is lost
  EXPECT_NE(index_digest(*open("tfrecord", "a")), digest);

  const std::array<uint64_t, 4> shape = {2, 3, 4, 3};
  const auto array = [&](const std::string& labels) {
    file::write(at("train_images.npy"), npy_header("u1", shape) + std::string(72, 'x'));
    file::write(at("train_labels.npy"), npy_header("u1", std::span(shape).first(1)) + labels);
    return index_digest(*open("npy"));
  };
  const uint64_t before = array(std::string("\1\2"));
  EXPECT_EQ(array(std::string("\1\2")), before);
  EXPECT_NE(array(std::string("\2\1")), before);
}

// --- sizes and what follows from them

TEST_F(Opened, ImagesOfOneSizeAreDetected) {
  const auto add = [&](const std::string& name, int height, int width) {
    const bool png = name.ends_with("png");
    file::write(at("train/" + name),
                png ? encode_png(picture(height, width)) : encode_jpeg(picture(height, width)));
  };
  for (int i = 0; i < 20; ++i)
    add(fmt::format("a/{:02}.{}", i, i % 2 == 0 ? "png" : "jpg"), 32, 32);
  file::write(at("train/a/05.jpg"), "damaged");
  auto set = open("image_folder");
  EXPECT_EQ(set->info().height, 0);
  ASSERT_TRUE(common_size(*set));
  EXPECT_EQ(info_with_size(*set).height, 32);
  EXPECT_EQ(usual_recipe(info_with_size(*set)), "cifar");
  add("a/13.jpg", 32, 33);
  set = open("image_folder");
  EXPECT_FALSE(common_size(*set));
  EXPECT_EQ(info_with_size(*set).height, 0);
  EXPECT_EQ(usual_recipe(info_with_size(*set)), "official_resnet");
  EXPECT_EQ(usual_side(info_with_size(*set)), 224);
}

TEST(UsualRecipes, FollowFromTheKindOfData) {
  struct Case {
    std::string name;
    int height;
    int width;
    int channels;
    std::string recipe;
    int side;
  };
  for (const Case& one : std::vector<Case>{{"cifar10", 32, 32, 3, "cifar", 32},
                                           {"image_folder", 64, 64, 3, "cifar", 64},
                                           {"mnist", 28, 28, 1, "lenet", 28},
                                           {"npy", 28, 28, 1, "none", 28},
                                           {"npy", 8, 8, 1, "none", 8},
                                           {"image_folder", 8, 8, 3, "none", 8},
                                           {"npy", 20, 40, 3, "none", 40},
                                           {"image_folder", 256, 256, 3, "official_resnet", 224},
                                           {"tfrecord", 0, 0, 3, "official_resnet", 224}}) {
    DatasetInfo info;
    info.name = one.name;
    info.height = one.height;
    info.width = one.width;
    info.channels = one.channels;
    EXPECT_EQ(usual_recipe(info), one.recipe) << one.height << " x " << one.width;
    EXPECT_EQ(usual_side(info), one.side) << one.height << " x " << one.width;
  }
}

TEST_F(Opened, SkippedLinksAreReported) {
  file::write(at("train/ant/1.png"), encode_png(picture(4, 4)));
  ASSERT_EQ(symlink("nowhere", at("train/ant/2.png").c_str()), 0);
  const auto set = open("image_folder");
  ASSERT_EQ(set->size(), 2U);
  EXPECT_EQ(set->read(0, scratch_).label, 0);
  EXPECT_THROW(set->read(1, scratch_), CorruptRecord);
  ASSERT_EQ(symlink("..", at("train/ant/more").c_str()), 0);
  EXPECT_THROW(open("image_folder"), UsageError);
}

TEST_F(Opened, TheNumberOfSamplesCannotBeSetForFiles) {
  DatasetRequest wanted = request("tfrecord");
  ten_records(at("train.tfrecords"));
  wanted.samples = 5;
  EXPECT_THROW(open_dataset(wanted), UsageError);
  wanted = request("shapes10");
  wanted.samples = uint64_t{1} << 40;
  EXPECT_THROW(open_dataset(wanted), UsageError);
}

TEST_F(Opened, MemoryUseIsReported) {
  DatasetRequest wanted = request("shapes10");
  wanted.samples = 100;
  EXPECT_EQ(open_dataset(wanted)->memory_bytes(), 100U * (3072 + 8));
  const std::string bytes = ten_records(at("train.tfrecords"));
  EXPECT_LT(open("tfrecord")->memory_bytes(), 1000U);
  file::write(at("train.tfrecords"), gzipped(bytes));
  EXPECT_GT(open("tfrecord")->memory_bytes(), 30'720U);
}

}  // namespace
}  // namespace horon
