#include "horon/bench/machine.h"

#include <gtest/gtest.h>

#include "horon/bench/record.h"

namespace horon::bench {
namespace {

TEST(Machine, KindsAreShortAndDiffer) {
  const std::string intel =
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\n"
      "model name\t: Intel(R) Xeon(R) Processor\nvendor_id\t: Another\n";
  const std::string amd = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel name\t: AMD EPYC\n";
  EXPECT_EQ(cpu_kind(intel, "avx512"), "intel-6-avx512");
  EXPECT_EQ(cpu_kind(amd, "avx2"), "amd-25-avx2");
  EXPECT_EQ(cpu_kind(amd, "avx512"), "amd-25-avx512");
  EXPECT_EQ(cpu_kind("vendor_id : ../ Shang/hai\ncpu family : 7\n", "avx2"), "Shanghai-7-avx2");
  EXPECT_EQ(cpu_kind("CPU implementer : 0x41\n", "generic"), "cpu-0-generic");
}

TEST(Machine, ThisOneSaysWhatItIs) {
  const Machine machine = this_machine();
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_NE(describe(machine).find(machine.kind), std::string::npos);
  EXPECT_NE(describe(machine).find(machine.cpu), std::string::npos);
  for (const std::string& cache : machine.caches)
    EXPECT_NE(describe(machine).find(cache), std::string::npos);
}

TEST(Spread, HoldsTheMedianAndGetsNarrowerWithMoreValues) {
  std::vector<double> few;
  std::vector<double> many;
  for (int i = 0; i < 9; ++i) few.push_back(i % 9 + 1);
  for (int i = 0; i < 900; ++i) many.push_back(i % 9 + 1);
  EXPECT_DOUBLE_EQ(spread_of(few).middle, 5);
  EXPECT_DOUBLE_EQ(spread_of(few).low, 2);  // 9/2 - 0.98 * 3 = 1.56: the second
  EXPECT_DOUBLE_EQ(spread_of(few).high, 8);
  EXPECT_DOUBLE_EQ(spread_of(many).low, 5);
  EXPECT_DOUBLE_EQ(spread_of({3}).low, 3);
}

}  // namespace
}  // namespace horon::bench
