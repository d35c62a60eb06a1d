#include "core/mix.h"

#include <limits>

#include "random.h"
#include "testing.h"

namespace tfsparse {
namespace {

using testing::Random;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Computed by Python's integers:
//   def mix(x, m=(1 << 64) - 1):
//       x &= m
//       x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & m
//       x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & m
//       return x ^ (x >> 31)
struct Golden {
  int64_t key;
  uint64_t hash;
};
constexpr Golden kGolden[] = {
    {0, 0x0000000000000000u},    {1, 0x5692161d100b05e5u},
    {2, 0xdbd238973a2b148au},    {-1, 0xb4d055fcf2cbbd7bu},
    {42, 0xa759ea27d4727622u},   {int64_t{1} << 48, 0x33c3a78b9b45efb1u},
    {kMin, 0x25c26ea579cea98au}, {kMax, 0x5a682afe7965debdu},
};

TEST(Mix, HashesAreFrozen) {
  for (const Golden& golden : kGolden) EXPECT_EQ(HashOf(golden.key), golden.hash);
}

TEST(Mix, KeysComeBackFromFrozenHashes) {
  for (const Golden& golden : kGolden) EXPECT_EQ(KeyOf(golden.hash), golden.key);
}

TEST(Mix, UnmixInvertsMixBothWays) {
  Random random;
  for (int i = 0; i < 100000; ++i) {
    const uint64_t x = random.Next();
    ASSERT_EQ(Unmix(Mix(x)), x);
    ASSERT_EQ(Mix(Unmix(x)), x);
  }
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t power = uint64_t{1} << bit;
    for (uint64_t x : {power, power - 1, ~power, ~power + 1}) {
      ASSERT_EQ(Unmix(Mix(x)), x);
      ASSERT_EQ(Mix(Unmix(x)), x);
    }
  }
}

// Ids come as a feature number in the high bits and a counter in the low ones. The buckets they
// fall into must be as even as if drawn at random: 1,000 +- 6 standard deviations.
TEST(Mix, StructuredKeysSpreadEvenly) {
  for (int stride_bits : {0, 1, 16, 32, 38}) {
    std::vector<int> counts(256, 0);
    for (int64_t i = 0; i < 256000; ++i) {
      const uint64_t key = (uint64_t{3} << 56) + (static_cast<uint64_t>(i) << stride_bits);
      ++counts[Mix(key) >> 56];
    }
    for (int count : counts) EXPECT_NEAR(count, 1000, 190);
  }
}

}  // namespace
}  // namespace tfsparse
