#include "horon/net/store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/net/store_server.h"

// What every store promises.
namespace horon {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }
Deadline at_once() { return Deadline::after(Milliseconds(0)); }

struct Maker {
  std::string name;
  // Two handles on the same store.
  std::function<std::pair<std::shared_ptr<Store>, std::shared_ptr<Store>>(const TempFolder&)> make;
};

void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

class StoreContract : public testing::TestWithParam<Maker> {
 protected:
  TempFolder folder_;
  std::pair<std::shared_ptr<Store>, std::shared_ptr<Store>> both_ = GetParam().make(folder_);
  Store& a_ = *both_.first;
  Store& b_ = *both_.second;
};

TEST_P(StoreContract, WhatOneSetsTheOtherGets) {
  a_.set("key", "value", soon());
  EXPECT_EQ(b_.get("key", soon()), "value");
  a_.set("key", "", soon());
  EXPECT_EQ(b_.get("key", soon()), "");
  const std::string binary("\0\n\xff", 3);
  b_.set("a/b:c%d", binary, soon());
  EXPECT_EQ(a_.get("a/b:c%d", soon()), binary);
}

TEST_P(StoreContract, GetWaitsForSet) {
  auto waiting = std::async(std::launch::async, [&] { return a_.get("later", soon()); });
  b_.set("later", "now", soon());
  EXPECT_EQ(waiting.get(), "now");
}

TEST_P(StoreContract, GetAllWaitsForTheLast) {
  a_.set("all/0", "zero", soon());
  auto waiting = std::async(std::launch::async, [&] {
    return a_.get_all({"all/0", "all/1", "all/2"}, soon());
  });
  b_.set("all/2", "two", soon());
  b_.set("all/1", "one", soon());
  EXPECT_EQ(waiting.get(), (std::vector<std::string>{"zero", "one", "two"}));
  EXPECT_TRUE(a_.get_all({}, soon()).empty());
  EXPECT_THROW(a_.get_all({"all/0", "all/3"}, at_once()), TimeoutError);
}

TEST_P(StoreContract, WaitingEndsAtTheDeadline) {
  const Stopwatch watch;
  try {
    a_.get("never", Deadline::after(Milliseconds(60)));
    FAIL() << "got a value from nowhere";
  } catch (const TimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find("never'"), std::string::npos);
  }
  EXPECT_GE(watch.seconds(), 0.055);
  EXPECT_THROW(a_.wait({"never", "again"}, at_once()), TimeoutError);
}

TEST_P(StoreContract, AddIsAtomic) {
  std::vector<std::future<void>> adders;
  for (Store* store : {&a_, &b_, &a_, &b_}) {
    adders.push_back(std::async(std::launch::async, [store] {
      for (int i = 0; i < 50; ++i) store->add("count", 1, soon());
    }));
  }
  for (auto& adder : adders) adder.get();
  EXPECT_EQ(a_.add("count", -200, soon()), 0);
  EXPECT_EQ(b_.get("count", soon()), "0");
  a_.set("text", "abc", soon());
  EXPECT_THROW(b_.add("text", 1, soon()), UsageError);
}

TEST_P(StoreContract, ReadersNeverSeeAPart) {
  const std::string ones(100'000, '1');
  const std::string twos(100'000, '2');
  a_.set("big", ones, soon());
  auto writer = std::async(std::launch::async, [&] {
    for (int i = 0; i < 100; ++i) a_.set("big", i % 2 == 0 ? twos : ones, soon());
  });
  for (int i = 0; i < 200; ++i) {
    const std::string seen = b_.get("big", soon());
    ASSERT_TRUE(seen == ones || seen == twos);
  }
  writer.get();
}

TEST_P(StoreContract, RemoveForgets) {
  EXPECT_FALSE(a_.remove("key", soon()));
  a_.set("key", "value", soon());
  EXPECT_TRUE(b_.remove("key", soon()));
  EXPECT_THROW(a_.get("key", at_once()), TimeoutError);
}

TEST_P(StoreContract, RefusesBadKeysAndHugeValues) {
  EXPECT_THROW(a_.set("", "x", soon()), UsageError);
  EXPECT_THROW(a_.set("with space", "x", soon()), UsageError);
  EXPECT_THROW(a_.set(std::string(300, 'k'), "x", soon()), UsageError);
  EXPECT_THROW(a_.set("k", std::string(Store::kMaxValue + 1, 'x'), soon()), UsageError);
  a_.set("../../escape", "x", soon());  // a name like any other
  EXPECT_EQ(b_.get("../../escape", soon()), "x");
  EXPECT_FALSE(
      std::filesystem::exists(std::filesystem::path(folder_.path()).parent_path() / "escape"));
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreContract,
    testing::Values(
        Maker{"memory",
              [](const TempFolder&) {
                auto store = make_memory_store();
                return std::pair{store, store};
              }},
        Maker{"file",
              [](const TempFolder& folder) {
                return std::pair{make_file_store(folder.path() + "/s"),
                                 make_file_store(folder.path() + "/s")};
              }},
        Maker{"tls",
              [](const TempFolder&) {
                const Secret secret = Secret::random();
                const auto server = std::make_shared<StoreThread>(secret, StoreServer::Options(),
                                                                  Log(LogLevel::kError));
                const auto open = [&] {  // a client that keeps the server
                  const auto client = make_tls_store(server->endpoints(), secret);
                  const auto both =
                      std::make_shared<decltype(std::pair{server, client})>(server, client);
                  return std::shared_ptr<Store>(both, client.get());
                };
                return std::pair{open(), open()};
              }},
        Maker{"prefix",
              [](const TempFolder& folder) {
                auto inner = make_file_store(folder.path() + "/s");
                return std::pair{make_prefix_store(inner, "p/"), make_prefix_store(inner, "p/")};
              }}),
    [](const auto& one) { return one.param.name; });

TEST(PrefixStore, KeepsUsersApart) {
  const auto inner = make_memory_store();
  make_prefix_store(inner, "a/")->set("key", "1", soon());
  EXPECT_THROW(make_prefix_store(inner, "b/")->get("key", at_once()), TimeoutError);
  EXPECT_EQ(inner->get("a/key", soon()), "1");
}

TEST(FileStore, RefusesAFolderThatOthersCanWriteTo) {
  const TempFolder folder;
  const std::string open = folder.path() + "/open";
  mkdir(open.c_str(), 0700);
  chmod(open.c_str(), 0777);
  EXPECT_THROW(make_file_store(open), UsageError);
  EXPECT_THROW(make_file_store(folder.path() + "/no/such/parent"), IoError);
  struct stat info {};
  make_file_store(folder.path() + "/fresh")->set("key", "secret", soon());
  stat((folder.path() + "/fresh/key").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

}  // namespace
}  // namespace horon
