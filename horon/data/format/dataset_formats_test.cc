// Data sets of every format, read back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "horon/base/fd.h"
#include "horon/data/dataset.h"
#include "horon/data/format/detail_test_bytes.h"
#include "horon/data/format/example.h"
#include "horon/data/format/inflate.h"
#include "horon/data/format/made_up.h"
#include "horon/data/format/npy.h"
#include "horon/data/format/tfrecord.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"
#include "horon/data/open_dataset.h"
#include "horon/file/copy.h"

namespace horon {
namespace {

class Sets : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  DatasetRequest request(const std::string& name, const std::string& split = "train") const {
    DatasetRequest wanted;
    wanted.name = name;
    wanted.folder = folder_.path();
    wanted.split = split;
    return wanted;
  }
  TempFolder folder_;
  std::vector<uint8_t> scratch_;
};

TEST_F(Sets, CifarIsReadInBothVersions) {
  for (int file = 1; file <= 5; ++file) {
    std::string binary;
    std::string pixels;
    std::vector<int> labels;
    for (int i = 0; i < 4; ++i) {
      const std::string one = bytes_of(3072, static_cast<unsigned>(10 * file + i));
      labels.push_back((file + i) % 10);
      binary += static_cast<char>(labels.back());
      binary += one;
      pixels += one;
    }
    file::write(at(fmt::format("cifar-10-batches-bin/data_batch_{}.bin", file)), binary);
    file::write(at(fmt::format("py/cifar-10-batches-py/data_batch_{}", file)),
                cifar_pickle(pixels, labels));
  }
  const auto binary = open_dataset(request("cifar10"));
  DatasetRequest other = request("cifar10");
  other.folder = at("py");
  const auto python = open_dataset(other);
  ASSERT_EQ(binary->size(), 20U);
  ASSERT_EQ(python->size(), 20U);
  std::vector<uint8_t> more;
  for (uint64_t i = 0; i < 20; ++i) {
    const Record a = binary->read(i, scratch_);
    const Record b = python->read(i, more);
    EXPECT_EQ(a.label, b.label);
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()));
  }
  EXPECT_NE(binary->where(5).find("data_batch_2.bin, record 1"), std::string::npos);
  EXPECT_EQ(binary->info().class_names[3], "cat");
  EXPECT_THROW(open_dataset(request("cifar10", "test")), UsageError);
  EXPECT_THROW(open_dataset(request("cifar10", "validation")), UsageError);
  file::write(at("cifar-10-batches-bin/data_batch_3.bin"), "short");
  EXPECT_THROW(open_dataset(request("cifar10")), CorruptRecord);
  file::write(at("cifar-10-batches-bin/data_batch_3.bin"), std::string(3073, '\x0b'));
  EXPECT_THROW(open_dataset(request("cifar10")), CorruptRecord);  // label 11
}

TEST_F(Sets, ValidationIsCutTheSameForEverybody) {
  DatasetRequest wanted = request("shapes10");
  wanted.samples = 100;
  wanted.validation_split = 30;
  const auto train = open_dataset(wanted);
  wanted.split = "validation";
  const auto held_out = open_dataset(wanted);
  EXPECT_EQ(train->size(), 70U);
  EXPECT_EQ(held_out->size(), 30U);
  std::vector<std::string> places;
  for (uint64_t i = 0; i < 70; ++i) places.push_back(train->where(i));
  for (uint64_t i = 0; i < 30; ++i) places.push_back(held_out->where(i));
  std::sort(places.begin(), places.end());
  EXPECT_EQ(std::unique(places.begin(), places.end()), places.end());
  EXPECT_EQ(open_dataset(wanted)->where(7), held_out->where(7));
  wanted.validation_split = 100;
  EXPECT_THROW(open_dataset(wanted), UsageError);
}

TEST_F(Sets, MnistIsReadPlainAndGzipped) {
  std::string images("\0\0\x08\x03\0\0\0\x02\0\0\0\x03\0\0\0\x04", 16);
  images += bytes_of(24, 1);
  const std::string labels("\0\0\x08\x01\0\0\0\x02\x07\x02", 10);
  file::write(at("train-images-idx3-ubyte"), images);
  Deflater deflater(true);
  std::string packed(deflater.write(labels));
  packed += deflater.finish();
  file::write(at("train-labels-idx1-ubyte.gz"), packed);
  const auto set = open_dataset(request("mnist"));
  ASSERT_EQ(set->size(), 2U);
  EXPECT_EQ(set->read(1, scratch_).label, 2);
  const Record second = set->read(1, scratch_);
  EXPECT_EQ(std::string(second.bytes.begin(), second.bytes.end()), images.substr(16 + 12));
  EXPECT_EQ(set->info().height, 3);
  EXPECT_EQ(set->info().channels, 1);
  file::write(at("train-images-idx3-ubyte"), images.substr(0, 30));
  EXPECT_THROW(open_dataset(request("mnist")), CorruptRecord);
}

TEST_F(Sets, TfrecordsAreReadInBothSchemas) {
  Picture picture{4, 6, 3, std::vector<uint8_t>(72, 100)};
  for (int shard = 0; shard < 3; ++shard) {
    RecordWriter writer(at(fmt::format("train/train-{:05}-of-00003", shard)));
    for (int i = 0; i < 5; ++i) {
      writer.write(ExampleBuilder()
                       .add_bytes("image/encoded", encode_jpeg(picture))
                       .add_integer("image/class/label", 1 + 100 * shard + i)
                       .add_bytes("image/class/text", "anything")
                       .build());
    }
    writer.commit();
  }
  const auto imagenet = open_dataset(request("tfrecord"));
  ASSERT_EQ(imagenet->size(), 15U);
  EXPECT_EQ(imagenet->info().classes, 1000);
  EXPECT_EQ(imagenet->read(11, scratch_).label, 201);
  EXPECT_EQ(imagenet->read(11, scratch_).form, PixelForm::kJpeg);
  EXPECT_NE(imagenet->where(11).find("train-00002-of-00003, record 1 at offset "),
            std::string::npos);
  EXPECT_EQ(imagenet->chunks(), (std::vector<uint64_t>{5, 5, 5}));
  file::remove(at("train/train-00001-of-00003"));
  EXPECT_THROW(open_dataset(request("tfrecord")), UsageError);  // one is missing
  RecordWriter writer(at("eval/eval.tfrecords"));
  for (int i = 0; i < 4; ++i) writer.write(workshop_example(i, static_cast<unsigned>(i)));
  writer.write(ExampleBuilder().add_integer("label", 3).build());
  writer.write(workshop_example(77, 1));
  writer.commit();
  const auto workshop = open_dataset(request("tfrecord", "test"));
  ASSERT_EQ(workshop->size(), 6U);
  EXPECT_EQ(workshop->read(3, scratch_).label, 3);
  EXPECT_EQ(workshop->read(3, scratch_).height, 32);
  EXPECT_THROW(workshop->read(4, scratch_), CorruptRecord);  // no image
  EXPECT_THROW(workshop->read(5, scratch_), CorruptRecord);  // label 77
}

TEST_F(Sets, CompressedTfrecordsAreHeldInMemory) {
  for (const auto compression : {Compression::kGzip, Compression::kZlib}) {
    RecordWriter writer(at("train.tfrecords"), compression);
    for (int i = 0; i < 30; ++i) writer.write(workshop_example(i % 10, static_cast<unsigned>(i)));
    writer.commit();
    const auto set = open_dataset(request("tfrecord"));
    ASSERT_EQ(set->size(), 30U);
    EXPECT_EQ(set->read(17, scratch_).label, 7);
    EXPECT_EQ(set->chunks(), std::vector<uint64_t>{30});
    file::copy(at("train.tfrecords"), at("[odd] name/train.tfrecords"));
    DatasetRequest odd = request("tfrecord");
    odd.folder = at("[odd] name");
    EXPECT_EQ(open_dataset(odd)->size(), 30U);
  }
}

TEST_F(Sets, ImageFoldersAreRead) {
  Picture picture{2, 3, 3, std::vector<uint8_t>(18, 9)};
  for (const char* name : {"zebra/1.png", "ant/9.png", "ant/2.png", "cat/deep/5.png"})
    file::write(at(std::string("train/") + name), encode_png(picture));
  file::write(at("train/ant/notes.txt"), "not a picture");
  file::write(at("test/cat/1.jpg"), encode_jpeg(picture));
  const auto train = open_dataset(request("image_folder"));
  EXPECT_EQ(train->info().class_names, (std::vector<std::string>{"ant", "cat", "zebra"}));
  ASSERT_EQ(train->size(), 4U);
  EXPECT_EQ(file::base_name(train->where(0)), "2.png");
  EXPECT_EQ(train->read(3, scratch_).label, 2);
  const auto test = open_dataset(request("image_folder", "test"));
  EXPECT_EQ(test->read(0, scratch_).label, 1);  // as in training
  file::write(at("labels.txt"), "0: zebra\n1: cat\n2: ant\n");
  EXPECT_EQ(open_dataset(request("image_folder"))->read(0, scratch_).label, 2);
  file::write(at("test/dog/1.jpg"), "x");
  EXPECT_THROW(open_dataset(request("image_folder", "test")), UsageError);
  EXPECT_THROW(open_dataset(request("image_folder", "validation")), UsageError);
}

TEST_F(Sets, NumpyArraysAreRead) {
  const std::array<uint64_t, 4> shape = {3, 2, 2, 3};
  file::write(at("train_images.npy"), npy_header("u1", shape) + bytes_of(36, 4));
  const std::array<uint64_t, 1> count = {3};
  const std::array<int64_t, 3> labels = {5, 0, 2};
  file::write(
      at("train_labels.npy"),
      npy_header("i8", count) + std::string(reinterpret_cast<const char*>(labels.data()), 24));
  const auto set = open_dataset(request("npy"));
  EXPECT_EQ(set->size(), 3U);
  EXPECT_EQ(set->info().classes, 6);
  EXPECT_EQ(set->read(0, scratch_).label, 5);
  const Record second = set->read(1, scratch_);
  EXPECT_EQ(std::string(second.bytes.begin(), second.bytes.end()), bytes_of(36, 4).substr(12, 12));
  file::write(at("train_images.npy"), npy_header("u1", shape) + bytes_of(35, 4));
  EXPECT_THROW(open_dataset(request("npy")), CorruptRecord);
  // Sides of nothing, and a header that would take a stack to read.
  const std::array<uint64_t, 4> flat = {5, 0, 8000, 3};
  file::write(at("train_images.npy"), npy_header("u1", flat));
  EXPECT_THROW(open_dataset(request("npy")), CorruptRecord);
  std::string long_header = npy_header("u1", shape);
  long_header.insert(long_header.size() - 1, 60'000, ' ');
  long_header[8] = static_cast<char>((long_header.size() - 10) & 0xff);
  long_header[9] = static_cast<char>((long_header.size() - 10) >> 8);
  file::write(at("train_images.npy"), long_header + bytes_of(36, 4));
  EXPECT_THROW(open_dataset(request("npy")), CorruptRecord);
  file::write(at("train_images.npy"), "junk");
  EXPECT_THROW(open_dataset(request("npy")), CorruptRecord);
}

TEST_F(Sets, ShapesAreTheSameForASeed) {
  DatasetRequest wanted = request("shapes10");
  wanted.samples = 300;
  const auto a = make_shapes10(wanted);
  const auto b = make_shapes10(wanted);
  std::vector<int> classes(10);
  for (uint64_t i = 0; i < 300; ++i) {
    const Record one = a->read(i, scratch_);
    const Record two = b->read(i, scratch_);
    ASSERT_TRUE(std::equal(one.bytes.begin(), one.bytes.end(), two.bytes.begin()));
    ++classes[static_cast<size_t>(one.label)];
  }
  for (const int count : classes) EXPECT_GT(count, 10);
  wanted.seed = 1;
  const auto other = make_shapes10(wanted);
  const Record one = a->read(0, scratch_);
  const Record two = other->read(0, scratch_);
  EXPECT_FALSE(std::equal(one.bytes.begin(), one.bytes.end(), two.bytes.begin()));
  EXPECT_THROW(open_dataset(request("shape10")), UsageError);
}

}  // namespace
}  // namespace horon
