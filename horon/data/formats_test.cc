#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "horon/base/crc32c.h"
#include "horon/base/fd.h"
#include "horon/data/dataset.h"
#include "horon/data/example.h"
#include "horon/data/inflate.h"
#include "horon/data/npy.h"
#include "horon/data/pickle.h"
#include "horon/data/picture.h"
#include "horon/data/tfrecord.h"
#include "horon/file/copy.h"
#include "horon/file/file.h"

namespace horon {
namespace {

std::string bytes_of(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::string out(count, '\0');
  for (char& one : out) one = static_cast<char>(random());
  return out;
}

std::span<const uint8_t> span_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string workshop_example(int64_t label, unsigned seed) {
  return ExampleBuilder()
      .add_bytes("image", bytes_of(3072, seed))
      .add_integer("label", label)
      .build();
}

TEST(Examples, ReadBackAndInEveryForm) {
  const std::string built = ExampleBuilder()
                                .add_bytes("a", std::string("x\0y", 3))
                                .add_integer("negative", -5)
                                .add_float("f", 1.5F)
                                .build();
  const Example example = parse_example(span_of(built));
  EXPECT_EQ(example.at("a").bytes[0], std::string_view("x\0y", 3));
  EXPECT_EQ(example.at("negative").integers, std::vector<int64_t>{-5});
  EXPECT_EQ(example.at("f").floats, std::vector<float>{1.5F});
  // Not packed: field 1 as single varints; an unknown field in between.
  const std::string loose(
      "\x0a\x13\x0a\x11\x0a\x01n\x12\x0c\x1a\x0a\x08\x07\x08\x08\x78\x01\x08\xac\x02\x00", 21);
  const std::string whole = loose.substr(0, 20);
  std::string fixed = whole;
  fixed[1] = static_cast<char>(fixed.size() - 2);
  fixed[3] = static_cast<char>(fixed.size() - 4);
  fixed[8] = static_cast<char>(fixed.size() - 9);
  fixed[10] = static_cast<char>(fixed.size() - 11);
  EXPECT_EQ(parse_example(span_of(fixed)).at("n").integers, (std::vector<int64_t>{7, 8, 300}));
  EXPECT_TRUE(parse_example({}).empty());
}

TEST(Examples, DamagedOnesAreRefusedWithoutHarm) {
  const std::string good = workshop_example(3, 1);
  for (size_t cut = 1; cut < good.size(); cut += 37)
    EXPECT_THROW(parse_example(span_of(good.substr(0, cut))), Error) << cut;
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % 40] = static_cast<char>(random());
    try {
      for (const auto& [name, feature] : parse_example(span_of(bad))) {
        for (const std::string_view bytes : feature.bytes) {  // nothing from elsewhere
          ASSERT_GE(bytes.data(), bad.data());
          ASSERT_LE(bytes.data() + bytes.size(), bad.data() + bad.size());
        }
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kData);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1500);
  EXPECT_LT(refused, 3000);  // a letter of a name may be any other
}

class Records : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string write_records(int count, Compression compression = Compression::kNone) {
    const std::string name = path("train.tfrecords");
    RecordWriter writer(name, compression);
    for (int i = 0; i < count; ++i)
      writer.write(bytes_of(static_cast<size_t>(i * 331 % 5000), static_cast<unsigned>(i)));
    writer.commit();
    return name;
  }
  // Good records and damages of a file with these bytes.
  std::pair<int, int> read(const std::string& bytes) {
    file::write(path("x"), bytes);
    RecordReader reader(file::open(path("x")));
    std::span<const uint8_t> record;
    int good = 0;
    while (reader.next(record)) ++good;
    EXPECT_FALSE(reader.next(record));  // and stays at the end
    // Who reads lengths only comes as far, and sees what is lost.
    const RecordIndex index = index_records(*file::open(path("x")));
    const bool lost = !reader.damages().empty() && reader.damages().back().rest_is_lost;
    EXPECT_EQ(index.lost.has_value(), lost);
    if (lost && index.lost) {
      EXPECT_EQ(index.lost->offset, reader.damages().back().offset);
      EXPECT_EQ(index.lost->index, reader.damages().back().index);
    }
    EXPECT_EQ(index.places.size(),
              static_cast<size_t>(good) + reader.damages().size() - (lost ? 1 : 0));
    return {good, static_cast<int>(reader.damages().size())};
  }
  TempFolder folder_;
};

TEST_F(Records, ReadBackPlainAndCompressed) {
  for (const auto compression : {Compression::kNone, Compression::kGzip, Compression::kZlib}) {
    const std::string name = write_records(500, compression);
    EXPECT_EQ(compression_of(*file::open(name)), compression);
    RecordReader reader(file::open(name));
    std::span<const uint8_t> record;
    for (int i = 0; i < 500; ++i) {
      ASSERT_TRUE(reader.next(record)) << i;
      const std::string want =
          bytes_of(static_cast<size_t>(i * 331 % 5000), static_cast<unsigned>(i));
      ASSERT_TRUE(
          std::equal(record.begin(), record.end(), span_of(want).begin(), span_of(want).end()))
          << i;
      EXPECT_EQ(reader.index(), static_cast<uint64_t>(i));
    }
    EXPECT_FALSE(reader.next(record));
    EXPECT_TRUE(reader.damages().empty());
  }
}

TEST_F(Records, AreFoundByTheirPlaces) {
  const std::string name = write_records(300);
  for (int round = 0; round < 2; ++round) {  // made, then from the file beside it
    const auto places = load_index(name).places;
    ASSERT_EQ(places.size(), 300U);
    std::vector<uint8_t> scratch;
    const auto record = read_record(*file::open(name), places[123], scratch);
    const std::string want = bytes_of(123 * 331 % 5000, 123);
    EXPECT_TRUE(
        std::equal(record.begin(), record.end(), span_of(want).begin(), span_of(want).end()));
    EXPECT_TRUE(file::exists(name + ".index"));
  }
  const std::string index = file::read(name + ".index");
  for (const size_t at : {size_t{0}, size_t{9}, size_t{25}, size_t{40}, index.size() - 1}) {
    std::string bad = index;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    file::write(name + ".index", bad);
    EXPECT_EQ(load_index(name).places.size(), 300U);  // not believed, made again
  }
  write_records(200);  // another file: the index is old
  EXPECT_EQ(load_index(name).places.size(), 200U);
}

// Twelve kinds of damage, each with what is left after it.
TEST_F(Records, EveryDamageIsCounted) {
  const std::string whole = file::read(write_records(50));
  const auto places = index_records(*file::open(path("train.tfrecords"))).places;
  const auto at = [&](size_t i) { return places[i].offset; };
  const auto flipped = [&](size_t place) {
    std::string bad = whole;
    bad[place] = static_cast<char>(bad[place] ^ 0x10);
    return bad;
  };
  const auto with_length = [&](uint64_t length) {  // record 20, with a checksum that fits
    std::string bad = whole;
    const uint32_t crc = mask_crc(crc32c(&length, 8));
    std::memcpy(bad.data() + at(20), &length, 8);
    std::memcpy(bad.data() + at(20) + 8, &crc, 4);
    return bad;
  };
  using Pair = std::pair<int, int>;
  EXPECT_EQ(read(whole), Pair(50, 0));
  EXPECT_EQ(read(flipped(at(20) + 12)), Pair(49, 1));            // first byte of the contents
  EXPECT_EQ(read(flipped(at(21) - 5)), Pair(49, 1));             // last byte
  EXPECT_EQ(read(flipped(at(21) - 1)), Pair(49, 1));             // checksum of the contents
  EXPECT_EQ(read(flipped(at(20))), Pair(20, 1));                 // length
  EXPECT_EQ(read(flipped(at(20) + 7)), Pair(20, 1));             // its high byte
  EXPECT_EQ(read(flipped(at(20) + 9)), Pair(20, 1));             // checksum of the length
  EXPECT_EQ(read(whole.substr(0, at(20) + 5)), Pair(20, 1));     // cut in the length
  EXPECT_EQ(read(whole.substr(0, at(20) + 100)), Pair(20, 1));   // cut in the contents
  EXPECT_EQ(read(whole.substr(0, at(21) - 2)), Pair(20, 1));     // cut in the checksum
  EXPECT_EQ(read(with_length(uint64_t{1} << 60)), Pair(20, 1));  // an enormous length
  EXPECT_EQ(read(with_length(whole.size())), Pair(20, 1));       // more than is left
  EXPECT_EQ(read(whole + std::string(30, '\0')), Pair(50, 1));   // zeros at the end
  EXPECT_EQ(read(whole.substr(0, at(20)) + whole.substr(at(21))), Pair(49, 0));  // one is missing
  EXPECT_EQ(read(""), Pair(0, 0));
  EXPECT_EQ(read("garbage, and not short either"), Pair(0, 1));
}

// What was good before the damage is given out first.
TEST_F(Records, ADamagedArchiveIsAnErrorWhereItIsDamaged) {
  const std::string whole = file::read(write_records(50, Compression::kGzip));
  file::write(path("cut"), whole.substr(0, whole.size() / 2));
  RecordReader reader(file::open(path("cut")));
  std::span<const uint8_t> record;
  int good = 0;
  EXPECT_THROW(while (reader.next(record))++ good, CorruptRecord);
  EXPECT_GT(good, 20);
  EXPECT_LT(good, 30);
}

// --- pickles

std::string hex(const std::string& digits) {
  std::string out;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    out += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return out;
}

// What Python writes for {b'data': uint8 array of n x 3072, b'labels': [...]}, protocol 2.
std::string cifar_pickle(const std::string& pixels, const std::vector<int>& labels) {
  const auto little = [](size_t value) {
    std::string out(4, '\0');
    for (size_t i = 0; i < 4; ++i) out[i] = static_cast<char>(value >> (8 * i));
    return out;
  };
  std::string out =
      "\x80\x02}q\x01(U\x04"
      "dataq\x02";
  out +=
      "cnumpy.core.multiarray\n_reconstruct\nq\x03"
      "cnumpy\nndarray\nq\x04K";
  out += std::string(
             "\0\x85q\x05U\x01"
             "bq\x06\x87q\x07Rq\x08(K\x01J",
             19) +
         little(labels.size());
  out += "M" + std::string("\x00\x0c", 2) +
         "\x86q\x09"
         "cnumpy\ndtype\nq\x0aU\x02u1q\x0bK";
  out += std::string(
      "\0K\x01\x87q\x0cRq\x0d(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T", 34);
  out += little(pixels.size()) + pixels + "tbU\x06labels](";
  for (const int label : labels) out += std::string("K") + static_cast<char>(label);
  return out + "eu.";
}

TEST(Pickles, PlainDataOfAllProtocols) {
  // {'a': [1, -2, 3.5, None, True, (4,), 'text', b'\x00\xff', 123456789012]}, as Python writes it.
  for (const char* digits :
       {"286470300a56610a70310a286c70320a49310a61492d320a6146332e350a614e614930310a612849340a7470"
        "330a6156746578740a70340a61635f636f646563730a656e636f64650a70350a28565c7530303030ff0a7036"
        "0a566c6174696e310a70370a7470380a5270390a614c3132333435363738393031324c0a61732e",
        "7d710058010000006171015d7102284b014afeffffff47400c0000000000004e4930310a284b047471035804"
        "000000746578747104635f636f646563730a656e636f64650a710528580300000000c3bf710658060000006c"
        "6174696e3171077471085271094c3132333435363738393031324c0a65732e",
        "80027d710058010000006171015d7102284b014afeffffff47400c0000000000004e884b0485710358040000"
        "00746578747104635f636f646563730a656e636f64650a7105580300000000c3bf710658060000006c617469"
        "6e3171078671085271098a05141a99be1c65732e",
        "80037d710058010000006171015d7102284b014afeffffff47400c0000000000004e884b0485710358040000"
        "00746578747104430200ff71058a05141a99be1c65732e",
        "80049535000000000000007d948c0161945d94284b014afeffffff47400c0000000000004e884b0485948c04"
        "7465787494430200ff948a05141a99be1c65732e",
        "80059535000000000000007d948c0161945d94284b014afeffffff47400c0000000000004e884b0485948c04"
        "7465787494430200ff948a05141a99be1c65732e"}) {
    const std::string bytes = hex(digits);
    const Pickle pickle = parse_pickle(span_of(bytes));
    const auto* dict = pickle.root->as<PickleDict>();
    ASSERT_NE(dict, nullptr);
    const auto* list = dict->find("a")->as<PickleList>();
    ASSERT_NE(list, nullptr);
    ASSERT_EQ(list->items.size(), 9U);
    EXPECT_EQ(*list->items[0]->as<int64_t>(), 1);
    EXPECT_EQ(*list->items[1]->as<int64_t>(), -2);
    EXPECT_EQ(*list->items[2]->as<double>(), 3.5);
    EXPECT_NE(list->items[3]->as<PickleNone>(), nullptr);
    EXPECT_TRUE(*list->items[4]->as<bool>());
    EXPECT_EQ(*list->items[5]->as<PickleList>()->items[0]->as<int64_t>(), 4);
    EXPECT_EQ(*list->items[6]->as<std::string>(), "text");
    EXPECT_EQ(*list->items[7]->as<std::string>(), std::string("\0\xff", 2));
    EXPECT_EQ(*list->items[8]->as<int64_t>(), 123456789012);
  }
}

TEST(Pickles, CifarBatches) {
  const std::string pixels = bytes_of(2 * 3072, 9);
  const Pickle pickle = parse_pickle(span_of(cifar_pickle(pixels, {3, 9})));
  const auto* dict = pickle.root->as<PickleDict>();
  ASSERT_NE(dict, nullptr);
  const auto* array = dict->find("data")->as<PickleArray>();
  ASSERT_NE(array, nullptr);
  EXPECT_EQ(array->shape, (std::vector<uint64_t>{2, 3072}));
  EXPECT_EQ(array->bytes, pixels);
  EXPECT_EQ(*dict->find("labels")->as<PickleList>()->items[1]->as<int64_t>(), 9);
}

TEST(Pickles, HostileOnesAreRefusedByName) {
  const auto reason = [](const std::string& bytes) -> std::string {
    try {
      parse_pickle(span_of(bytes));
    } catch (const Error& error) {
      return error.what();
    }
    return "was read";
  };
  EXPECT_NE(reason("cos\nsystem\n(S'true'\ntR.").find("'os.system' is not allowed"),
            std::string::npos);
  EXPECT_NE(reason("cbuiltins\neval\n(V1\ntR.").find("'builtins.eval'"), std::string::npos);
  EXPECT_NE(reason("\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.").find("'posix.system'"),
            std::string::npos);
  EXPECT_NE(reason("(ios\nsystem\n.").find("operation 0x69 is not allowed"), std::string::npos);
  EXPECT_NE(reason("cnumpy\nndarray\n(tR.").find("not called with"), std::string::npos);
  EXPECT_NE(reason("Pfile\n.").find("0x50"), std::string::npos);
  for (const char* broken : {"", ".", "(", "h\x01.", "e.", "K", "}K\x01K\x02K\x03u.",
                             "T\xff\xff\xff\x7f", "\x8e\xff\xff\xff\xff\xff\xff\xff\xff",
                             "L999999999999999999999L\n.", "\x80\x09.", "]h\x00.", "R.", "b."})
    EXPECT_NE(reason(broken), "was read") << broken;
  // A list in itself, a thousand times: read, and freed.
  std::string circle = "]q\x01";
  for (int i = 0; i < 1000; ++i)
    circle +=
        "h\x01"
        "a";
  EXPECT_EQ(reason(circle + "."), "was read");
  // One long string made into many arrays.
  std::string bomb = "c_codecs\nencode\nq\x01X" + std::string("\x10\x27\0\0", 4) +
                     std::string(10'000, 'a') +
                     "q\x02"
                     "00(";
  for (int i = 0; i < 2000; ++i) bomb += "h\x01h\x02\x85R";
  EXPECT_NE(reason(bomb + "t.").find("too often"), std::string::npos);
}

// Refused, or values that are what they say.
TEST(Pickles, AnyBytesAreHarmless) {
  const std::string good = cifar_pickle(bytes_of(3072, 1), {1});
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 1 + i % 4; ++k) bad[random() % 180] = static_cast<char>(random());
    try {
      const Pickle pickle = parse_pickle(span_of(bad));
      ASSERT_NE(pickle.root, nullptr);
      for (const PickleValue& value : pickle.values) {
        const auto* array = value.as<PickleArray>();
        if (array == nullptr || array->shape.empty()) continue;
        uint64_t bytes = static_cast<uint64_t>(array->dtype.back() - '0');
        for (const uint64_t one : array->shape) bytes *= one;
        ASSERT_EQ(array->bytes.size(), bytes) << i;
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.exit_code(), ExitCode::kData) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 3000);
  EXPECT_LT(refused, 5000);
}

// --- data sets

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

TEST_F(Sets, CifarInBothVersions) {
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

TEST_F(Sets, MnistPlainAndGzipped) {
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

TEST_F(Sets, TfrecordsOfBothSchemas) {
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
  EXPECT_THROW(workshop->read(4, scratch_), CorruptRecord);  // no picture
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

TEST_F(Sets, FoldersOfPictures) {
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

TEST_F(Sets, NumpyArrays) {
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
