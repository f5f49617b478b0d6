#include "horon/file/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/file/copy.h"

namespace horon::file {
namespace {

// What every storage that can be written promises.
class StorageContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    static std::atomic<int> number{0};
    root_ =
        GetParam() == "mem" ? "mem://test" + std::to_string(number++) : folder_.path() + "/here";
    make_folder(root_);
  }
  std::string at(const std::string& name) const { return join_path(root_, name); }
  std::vector<std::string> names(const std::vector<FileInfo>& files) const {
    std::vector<std::string> list;
    for (const FileInfo& one : files) list.push_back(one.path.substr(root_.size() + 1));
    return list;
  }

 private:
  TempFolder folder_;

 protected:
  std::string root_;
};

TEST_P(StorageContract, ReadsWhatWasWritten) {
  const std::string text(300'000, 'x');
  write(at("deep/er/file"), text + "end");  // folders are made
  EXPECT_EQ(read(at("deep/er/file")), text + "end");
  const auto file = open(at("deep/er/file"));
  EXPECT_EQ(file->size(), text.size() + 3);
  std::vector<std::byte> some(10);
  EXPECT_EQ(file->read_at(text.size() - 2, some), 5U);
  EXPECT_EQ(static_cast<char>(some[4]), 'd');
  EXPECT_EQ(file->read_at(text.size() + 3, some), 0U);
  write(at("empty"), "");
  EXPECT_EQ(read(at("empty")), "");
  EXPECT_THROW(read(at("deep/er/file"), 1000), IoError);
}

TEST_P(StorageContract, AFileAppearsWholeOrNotAtAll) {
  write(at("x"), "old");
  {
    const auto writer = create(at("x"));
    writer->append("new");
    EXPECT_EQ(read(at("x")), "old");
  }
  EXPECT_EQ(read(at("x")), "old");  // never committed
  EXPECT_EQ(names(list(root_)), std::vector<std::string>{"x"});
  const auto reader = open(at("x"));
  write(at("x"), "newer");
  std::vector<std::byte> bytes(10);
  EXPECT_EQ(reader->read_at(0, bytes), 3U);  // still the old one
  EXPECT_EQ(read(at("x")), "newer");
}

// Of many that want a name, one gets it, and nobody sees half of its bytes.
TEST_P(StorageContract, ANewFileIsMadeOnce) {
  for (int round = 0; round < 20; ++round) {
    const std::string path = at("lock" + std::to_string(round));
    std::atomic<int> made = 0;
    std::string winner;
    {
      std::vector<std::jthread> all;
      for (int i = 0; i < 8; ++i)
        all.emplace_back([&, text = std::string(1000, static_cast<char>('a' + i))] {
          if (write_new(path, text) && ++made == 1) winner = text;
          EXPECT_EQ(read(path).size(), 1000U);
        });
    }
    EXPECT_EQ(made, 1);
    EXPECT_EQ(read(path), winner);
  }
  EXPECT_EQ(list(root_).size(), 20U);  // and nothing is left beside
}

TEST_P(StorageContract, ListsByNameAndFindsByPattern) {
  for (const char* name : {"b/train-1-of-3", "b/train-0-of-3", "b/other", "a/train-2-of-3", "c"})
    write(at(name), "1");
  EXPECT_EQ(names(list(root_)), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(list(root_)[0].is_folder);
  EXPECT_EQ(names(list_tree(root_)),
            (std::vector<std::string>{"a/train-2-of-3", "b/other", "b/train-0-of-3",
                                      "b/train-1-of-3", "c"}));
  EXPECT_EQ(names(glob(at("b/train-*-of-*"))),
            (std::vector<std::string>{"b/train-0-of-3", "b/train-1-of-3"}));
  EXPECT_EQ(names(glob(at("?/train-[02]*"))),
            (std::vector<std::string>{"a/train-2-of-3", "b/train-0-of-3"}));
  EXPECT_EQ(glob(at("**/train*")).size(), 3U);
  write(at("odd[1]/x*y"), "1");
  write(at("odd1/x"), "1");
  EXPECT_EQ(names(glob(at("odd[1]/*"))), (std::vector<std::string>{"odd1/x", "odd[1]/x*y"}));
  EXPECT_EQ(names(glob(at("odd[1]/x*y"))), std::vector<std::string>{"odd[1]/x*y"});
  EXPECT_TRUE(glob(at("nothing*")).empty());
  EXPECT_THROW(list(at("none")), IoError);
}

TEST_P(StorageContract, RenamesRemovesAndAppends) {
  write(at("a/x"), "1");
  rename(at("a/x"), at("b/y"));
  EXPECT_FALSE(exists(at("a/x")));
  EXPECT_EQ(read(at("b/y")), "1");
  rename(at("b"), at("c"));
  EXPECT_EQ(read(at("c/y")), "1");
  EXPECT_THROW(remove(at("c")), IoError);  // not empty
  append(at("c/y"), "23");
  append(at("log"), "new");
  EXPECT_EQ(read(at("c/y")), "123");
  EXPECT_EQ(read(at("log")), "new");
  EXPECT_EQ(stat(at("c/y"))->bytes, 3U);
  remove_tree(at("c"));
  EXPECT_FALSE(exists(at("c")));
  EXPECT_THROW(remove(at("c")), IoError);
  EXPECT_THROW(open(at("c")), IoError);
  EXPECT_THROW(rename(at("c"), at("d")), IoError);
  EXPECT_THROW(open(root_), IoError);
}

TEST_P(StorageContract, CopiesTreesInParallelAndOnlyWhatIsMissing) {
  for (int i = 0; i < 40; ++i)
    write(at("from/" + std::to_string(i % 4) + "/" + std::to_string(i)),
          std::string(static_cast<size_t>(i * 997), 'a'));
  TreeCopyResult first =
      copy_parallel(at("from"), at("to"), {.threads = 5, .progress = {}, .stop = {}});
  EXPECT_EQ(first.copied, 40U);
  EXPECT_EQ(first.failed, std::vector<std::string>());
  EXPECT_EQ(read(at("to/3/39")), read(at("from/3/39")));
  EXPECT_EQ(list_tree(at("to")).size(), 40U);
  remove(at("to/1/21"));
  write(at("to/2/22"), "another size");
  const TreeCopyResult second = copy_parallel(at("from"), at("to"));
  EXPECT_EQ(second.copied, 2U);
  EXPECT_EQ(second.skipped, 38U);
  EXPECT_EQ(read(at("to/2/22")), read(at("from/2/22")));
  EXPECT_THROW(copy_parallel(at("none"), at("to")), IoError);
  make_folder(at("nothing"));
  EXPECT_THROW(copy_parallel(at("nothing"), at("to")), IoError);
}

INSTANTIATE_TEST_SUITE_P(Storages, StorageContract, testing::Values("local", "mem"),
                         [](const auto& one) { return one.param; });

// A copy from either storage to the disk that is interrupted after two of its three megabytes.
class UnfinishedCopies : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    static std::atomic<int> number{0};
    from_ = GetParam() == "mem" ? "mem://unfinished" + std::to_string(number++)
                                : folder_.path() + "/from";
    to_ = folder_.path() + "/to";
    text_.resize(3U << 20, 'q');
    for (size_t i = 0; i < text_.size(); i += 1000)
      text_[i] = static_cast<char>('a' + i / 1000 % 26);
    write(from_, text_);
    uint64_t copied = 0;
    std::stop_source stop;
    EXPECT_THROW(copy(from_, to_,
                      {.on_bytes =
                           [&](uint64_t bytes) {
                             copied += bytes;
                             if (copied >= 2U << 20) stop.request_stop();
                           },
                       .stop = stop.get_token()}),
                 Error);
    EXPECT_FALSE(exists(to_));
    ASSERT_EQ(read(part()).size(), 2U << 20);
  }
  std::string part() const { return to_ + std::string(kPartSuffix); }
  std::string sums() const { return to_ + std::string(kSumsSuffix); }
  // Writes over bytes of a file in place; behind its end, too.
  static void change(const std::string& path, uint64_t at, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file << bytes;
    ASSERT_TRUE(file.good());
  }
  // In how many pieces it was brought to its end: of a megabyte each, and what was kept.
  size_t go_on() {
    std::vector<uint64_t> pieces;
    copy(from_, to_, {.on_bytes = [&](uint64_t bytes) { pieces.push_back(bytes); }, .stop = {}});
    EXPECT_EQ(read(to_), text_);
    EXPECT_FALSE(exists(part()));
    EXPECT_FALSE(exists(sums()));
    uint64_t written = 0;
    for (const uint64_t one : pieces) written += one;
    EXPECT_EQ(written, text_.size());
    return pieces.size();
  }
  TempFolder folder_;
  std::string from_;
  std::string to_;
  std::string text_;
};

TEST_P(UnfinishedCopies, AreContinued) { EXPECT_EQ(go_on(), 2U); }

TEST_P(UnfinishedCopies, AreVerifiedBeforeTheyContinue) {
  const std::string good = read(part());
  const std::string good_sums = read(sums());
  const auto after = [&](const std::function<void()>& harm) {
    std::ofstream(part(), std::ios::binary) << good;
    std::ofstream(sums(), std::ios::binary) << good_sums;
    harm();
    const size_t pieces = go_on();
    file::remove(to_);
    return pieces;
  };
  EXPECT_EQ(after([&] { change(part(), 2U << 20, std::string(5U << 20, 'z')); }), 2U);  // cut off
  EXPECT_EQ(after([&] { change(part(), 10, "bad!"); }), 3U);
  EXPECT_EQ(after([&] { change(part(), (1U << 20) + 4711, "bad!"); }), 3U);
  EXPECT_EQ(after([&] { change(sums(), 9, "x"); }), 3U);  // an invalid checksum
  EXPECT_EQ(after([&] { change(sums(), 2, "x"); }), 3U);  // of something else
  EXPECT_EQ(after([&] { file::remove(sums()); }), 3U);    // no checksums
  EXPECT_EQ(after([&] { std::filesystem::resize_file(part(), 1'000'000); }), 3U);
  EXPECT_EQ(after([&] { std::filesystem::resize_file(part(), 0); }), 3U);
}

INSTANTIATE_TEST_SUITE_P(Sources, UnfinishedCopies, testing::Values("local", "mem"),
                         [](const auto& one) { return one.param; });

// As much is kept as is sure, in whole megabytes, however the bytes came.
TEST(LocalFiles, AnUnfinishedFileIsKeptUpToTheFirstByteThatIsWrong) {
  const TempFolder folder;
  const std::string path = folder.path() + "/x";
  const auto begin = [&](const std::string& identity, uint64_t& already) {
    return file_system_of(path).create(path, {.resumes = true, .identity = identity}, already);
  };
  std::string text(3'700'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i / 1000);
  uint64_t already = 7;
  {
    const auto writer = begin("a", already);
    EXPECT_EQ(already, 0U);
    for (size_t at = 0; at < text.size(); at += 300'007)
      writer->append(std::string_view(text).substr(at, 300'007));
    EXPECT_THROW(begin("a", already), IoError);  // somebody is writing it
  }
  begin("a", already);
  EXPECT_EQ(already, 3U << 20);
  {
    std::fstream file(path + std::string(kPartSuffix), std::ios::in | std::ios::out);
    file.seekp(2'500'000);
    file << "bad!";
  }
  const auto writer = begin("a", already);
  EXPECT_EQ(already, 2U << 20);
  writer->append(std::string_view(text).substr(already));
  writer->commit();
  EXPECT_EQ(read(path), text);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()),
                          std::filesystem::directory_iterator()),
            1);  // nothing is left beside it
  begin("a", already)->append(text);
  begin("b", already);
  EXPECT_EQ(already, 0U);  // a beginning of something else
}

TEST(LocalFiles, WhatDeadWritersLeftIsRemovedWhenAsked) {
  const TempFolder folder;
  const std::string left = folder.path() + "/x.1234-0" + std::string(kPartSuffix);
  std::ofstream(left) << "half";
  write(folder.path() + "/y", "whole");
  remove_unfinished(folder.path());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_EQ(read(folder.path() + "/y"), "whole");
  remove_unfinished(folder.path() + "/none");
}

TEST(LocalFiles, PermissionsAreKeptOnceItIsWhole) {
  const TempFolder folder;
  const std::string from = folder.path() + "/from";
  const std::string to = folder.path() + "/to";
  for (const mode_t mode : {0444U, 0600U, 0755U}) {
    file::write(from, std::string(3U << 20, 'm'));
    ASSERT_EQ(chmod(from.c_str(), mode), 0);
    std::stop_source stop;
    EXPECT_THROW(
        copy(from, to,
             {.on_bytes = [&](uint64_t) { stop.request_stop(); }, .stop = stop.get_token()}),
        Error);
    // Ours alone until then, and not read-only: it has to be gone on with.
    EXPECT_EQ(stat(to + std::string(kPartSuffix))->mode, 0600);
    copy(from, to);
    EXPECT_EQ(stat(to)->mode, static_cast<int>(mode));
    file::remove(from);
    file::remove(to);
  }
}

TEST(LocalFiles, LinksThatAreLeftOutAreNamedAndEmptyFoldersAreMade) {
  const TempFolder folder;
  const std::string from = folder.path() + "/from";
  write(from + "/a/x", "1");
  make_folder(from + "/b/empty");
  ASSERT_EQ(symlink("../a", (from + "/b/tree").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", (from + "/dangling").c_str()), 0);
  ASSERT_EQ(symlink("loop", (from + "/loop").c_str()), 0);
  ASSERT_EQ(symlink("a/x", (from + "/file").c_str()), 0);
  const TreeCopyResult result = copy_parallel(from, folder.path() + "/to");
  EXPECT_EQ(result.copied, 2U);
  EXPECT_EQ(result.failed, std::vector<std::string>());
  ASSERT_EQ(result.left_out.size(), 3U);
  EXPECT_NE(result.left_out[0].find("/from/b/tree: a link to a folder"), std::string::npos);
  EXPECT_NE(result.left_out[1].find("/from/dangling: a dangling link"), std::string::npos);
  EXPECT_NE(result.left_out[2].find("/from/loop: "), std::string::npos);
  EXPECT_EQ(read(folder.path() + "/to/file"), "1");
  EXPECT_FALSE(stat(folder.path() + "/to/file")->is_link);
  EXPECT_TRUE(stat(folder.path() + "/to/b/empty")->is_folder);
  EXPECT_THROW(copy_parallel(from + "/dangling", folder.path() + "/to2"), IoError);
}

TEST(LocalFiles, LinksThatLeadNowhereAreSeenAndRemoved) {
  const TempFolder folder;
  const std::string link = folder.path() + "/link";
  ASSERT_EQ(symlink("nowhere", link.c_str()), 0);
  EXPECT_FALSE(exists(link));
  ASSERT_TRUE(stat(link));
  EXPECT_TRUE(stat(link)->leads_nowhere);
  ASSERT_EQ(list(folder.path()).size(), 1U);
  file::remove(link);
  EXPECT_TRUE(list(folder.path()).empty());
}

TEST(LocalFiles, AFailedCopyIsNamedAndTheOthersContinue) {
  const TempFolder folder;
  for (const char* name : {"a", "b", "c"}) write(folder.path() + "/from/" + name, "1");
  make_folder(folder.path() + "/to/b");  // in the way
  const TreeCopyResult result = copy_parallel(folder.path() + "/from", folder.path() + "/to");
  EXPECT_EQ(result.copied, 2U);
  ASSERT_EQ(result.failed.size(), 1U);
  EXPECT_NE(result.failed[0].find("from/b: "), std::string::npos) << result.failed[0];
}

TEST(LocalFiles, LinksAreRemovedNotWhatTheyPointTo) {
  const TempFolder folder;
  write(folder.path() + "/keep/x", "1");
  make_folder(folder.path() + "/tree");
  ASSERT_EQ(symlink("../keep", (folder.path() + "/tree/link").c_str()), 0);
  ASSERT_EQ(symlink(".", (folder.path() + "/tree/loop").c_str()), 0);
  write(folder.path() + "/tree/y", "2");
  const auto entries = list_tree(folder.path() + "/tree");
  ASSERT_EQ(entries.size(), 3U);  // the links are named, and not followed
  EXPECT_TRUE(entries[0].is_link && entries[0].is_folder);
  EXPECT_FALSE(entries[2].is_link);
  EXPECT_EQ(glob(folder.path() + "/tree/**/y").size(), 1U);
  EXPECT_EQ(glob("file://" + folder.path() + "/tree/y*").size(), 1U);
  remove_tree(folder.path() + "/tree");
  EXPECT_FALSE(exists(folder.path() + "/tree"));
  EXPECT_EQ(read(folder.path() + "/keep/x"), "1");
}

TEST(LocalFiles, APartOfAnotherFileIsNotContinued) {
  const TempFolder folder;
  const std::string from = folder.path() + "/a";
  const std::string to = folder.path() + "/to";
  write(from, std::string(3U << 20, 'a'));
  write(folder.path() + "/b", std::string(3U << 20, 'b'));
  std::stop_source stop;
  EXPECT_THROW(copy(from, to,
                    {.on_bytes = [&](uint64_t) { stop.request_stop(); }, .stop = stop.get_token()}),
               Error);
  copy(folder.path() + "/b", to);
  EXPECT_EQ(read(to), std::string(3U << 20, 'b'));
  ASSERT_EQ(mkfifo((folder.path() + "/fifo").c_str(), 0600), 0);
  EXPECT_THROW(open(folder.path() + "/fifo"), IoError);
}

TEST(Paths, UnknownStoragesAreNamed) {
  EXPECT_THROW(open("s3://bucket/key"), UsageError);
  EXPECT_EQ(base_name("/a/b/"), "b");
  EXPECT_EQ(base_name("x"), "x");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_THROW(list("http://localhost:1/"), UsageError);
  EXPECT_THROW(write("http://localhost:1/x", "1"), UsageError);
  EXPECT_THROW(open("http://127.0.0.1:1/x"), IoError);
}

TEST(Crc32c, KnownValuesAndAnySplit) {
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283U);  // the check value of the polynomial
  const std::vector<char> zeros(32);
  EXPECT_EQ(crc32c(zeros.data(), 32), 0x8a9136aaU);  // RFC 3720, B.4
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += static_cast<char>(i * 31 + i / 7);
  const uint32_t whole = crc32c(text.data(), text.size());
  for (const size_t cut : {0U, 1U, 7U, 3071U, 3072U, 3073U, 9999U, 20'000U})
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)), whole) << cut;
}

}  // namespace
}  // namespace horon::file
