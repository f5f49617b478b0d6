#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/data/dataset.h"
#include "horon/data/format/detail_test_bytes.h"
#include "horon/data/format/example.h"
#include "horon/data/format/inflate.h"
#include "horon/data/format/pickle.h"
#include "horon/data/format/tfrecord.h"

namespace horon {
namespace {

std::span<const uint8_t> span_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
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
    EXPECT_EQ(index.positions.size(),
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

TEST_F(Records, AreReadByPosition) {
  const std::string name = write_records(300);
  for (int round = 0; round < 2; ++round) {  // made, then from the file beside it
    const auto positions = load_index(name).positions;
    ASSERT_EQ(positions.size(), 300U);
    std::vector<uint8_t> scratch;
    const auto record = read_record(*file::open(name), positions[123], scratch);
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
    EXPECT_EQ(load_index(name).positions.size(), 300U);  // not believed, made again
  }
  write_records(200);  // another file: the index is old
  EXPECT_EQ(load_index(name).positions.size(), 200U);
}

// Twelve kinds of damage, each with what is left after it.
TEST_F(Records, EveryDamageIsCounted) {
  const std::string whole = file::read(write_records(50));
  const auto positions = index_records(*file::open(path("train.tfrecords"))).positions;
  const auto at = [&](size_t i) { return positions[i].offset; };
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

TEST(Pickles, CifarBatchesAreRead) {
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

// Refused, or values in agreement with their types and sizes.
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

}  // namespace
}  // namespace horon
