#include "horon/comm/bootstrap.h"

#include <gtest/gtest.h>

#include <thread>

#include "horon/base/error.h"

namespace horon {
namespace {

// Whatever they are over: nobody begins before all have compared.
TEST(Bootstrap, RanksWithOtherSettingsDoNotBegin) {
  const auto store = make_memory_store();
  std::vector<std::string> said(2);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        BootstrapInfo info;
        info.rank = rank;
        info.size = 2;
        info.store = store;
        if (rank == 1) info.job_settings.set("chunk_bytes", "8KB", "test");
        bool told = false;
        info.on_failure = [&] { told = true; };
        try {
          make_communicator(info);
        } catch (const UsageError& error) {
          said[rank] = error.what();
          EXPECT_EQ(error.exit_code(), ExitCode::kMismatch);
        }
        EXPECT_TRUE(told);
      });
    }
  }
  EXPECT_NE(said[0].find("chunk_bytes: 16777216 bytes on rank 0, 8192 bytes on rank 1"),
            std::string::npos)
      << said[0];
  EXPECT_EQ(said[0], said[1]);
}

}  // namespace
}  // namespace horon
