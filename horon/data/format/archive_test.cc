#include "horon/data/format/archive.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "horon/base/fd.h"
#include "horon/data/dataset.h"
#include "horon/data/format/inflate.h"
#include "horon/file/file.h"

namespace horon {
namespace {

// One entry of a tar archive.
std::string entry(const std::string& name, char kind, const std::string& contents,
                  const std::string& size = "") {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  header.replace(124, 11, size.empty() ? fmt::format("{:011o}", contents.size()) : size);
  header[156] = kind;
  header.replace(257, 5, "ustar");
  unsigned sum = 8 * ' ';
  for (size_t i = 0; i < 512; ++i)
    sum += i >= 148 && i < 156 ? 0 : static_cast<unsigned char>(header[i]);
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  header += contents;
  header.resize((header.size() + 511) / 512 * 512, '\0');
  return header;
}
const std::string kEnd(1024, '\0');

class Archives : public testing::Test {
 protected:
  std::vector<std::string> unpack(const std::string& bytes) {
    file::write("mem://archives/x.tar", bytes);
    return unpack_archive("mem://archives/x.tar", folder_.path() + "/out");
  }
  std::string reason(const std::string& bytes) {
    try {
      unpack(bytes);
    } catch (const CorruptRecord& error) {
      return error.what();
    }
    return "was unpacked";
  }
  TempFolder folder_;
};

TEST_F(Archives, FilesAndFoldersPlainAndGzipped) {
  const std::string tar = entry("a/", '5', "") + entry("a/x", '0', std::string(700, 'x')) +
                          entry("././@LongLink", 'L', std::string(150, 'n') + '\0') +
                          entry("short", '0', "long") + entry("pax", 'x', "20 path=b/c/other\n") +
                          entry("ignored", '0', "y") + kEnd;
  EXPECT_EQ(unpack(tar).size(), 3U);
  EXPECT_EQ(file::read(folder_.path() + "/out/a/x"), std::string(700, 'x'));
  EXPECT_EQ(file::read(folder_.path() + "/out/" + std::string(150, 'n')), "long");
  EXPECT_EQ(file::read(folder_.path() + "/out/b/c/other"), "y");
  Deflater deflater(true);
  std::string packed(deflater.write(tar));
  packed += deflater.finish();
  EXPECT_EQ(unpack(packed).size(), 3U);
}

TEST_F(Archives, NothingLeavesTheFolder) {
  for (const std::string name :
       {"../evil", "a/../../evil", "/etc/evil", "a/b/../../../evil", "..", "a\\..\\evil"})
    EXPECT_NE(reason(entry(name, '0', "x") + kEnd).find("outside"), std::string::npos) << name;
  EXPECT_NE(reason(entry("pax", 'x', "20 path=../../evil\n") + entry("fine", '0', "x") + kEnd)
                .find("outside"),
            std::string::npos);
  EXPECT_NE(reason(entry("link", '2', "") + kEnd).find("link or a device"), std::string::npos);
  EXPECT_NE(reason(entry("hard", '1', "") + kEnd).find("link or a device"), std::string::npos);
  EXPECT_NE(reason(entry("fifo", '6', "") + kEnd).find("link or a device"), std::string::npos);
  EXPECT_FALSE(file::exists(folder_.path() + "/evil"));
  EXPECT_FALSE(file::exists("/etc/evil"));
}

TEST_F(Archives, DamagedOnesAreRefused) {
  const std::string good = entry("x", '0', std::string(3000, 'x')) + kEnd;
  EXPECT_NE(reason(good.substr(0, 1500)), "was unpacked");
  EXPECT_FALSE(file::exists(folder_.path() + "/out/x"));  // no beginning of it is left behind
  EXPECT_NE(reason(good.substr(0, 512 + 3072)), "was unpacked");  // no end
  EXPECT_NE(reason(std::string(2000, 'q')), "was unpacked");
  EXPECT_NE(reason(entry("x", '0', "", "77777777777") + kEnd),
            "was unpacked");  // 8 GB that are not there
  EXPECT_NE(reason(entry("x", '0', "", "99999999999") + kEnd), "was unpacked");
  EXPECT_NE(reason(entry("@LongLink", 'L', "", "00077777777") + kEnd), "was unpacked");
  // The header has a checksum: every changed byte of it is found, but for what follows the number
  // in the checksum's own field.
  ASSERT_EQ(reason(good), "was unpacked");
  std::mt19937 random(2);
  for (size_t at = 0; at < 512; ++at) {
    std::string bad = good;
    while (bad[at] == good[at]) bad[at] = static_cast<char>(random());
    const bool refused = reason(bad) != "was unpacked";
    if (at < 148 || at >= 156) {
      EXPECT_TRUE(refused) << at;
    }
    EXPECT_EQ(file::read(folder_.path() + "/out/x"), std::string(3000, 'x'));
  }
}

}  // namespace
}  // namespace horon
