#include "core/initializer.h"

#include <cmath>
#include <cstring>

#include "core/mix.h"
#include "random.h"
#include "testing.h"

namespace tfsparse {
namespace {

using testing::Random;

std::unique_ptr<Initializer> Make(const std::string& kind, const std::vector<float>& arguments,
                                  uint64_t seed) {
  std::unique_ptr<Initializer> initializer;
  EXPECT_OK(MakeInitializer(kind, arguments, seed, &initializer));
  return initializer;
}

std::vector<float> Fill(const Initializer& initializer, Key key, size_t dim) {
  std::vector<float> row(dim + 1, -7.0f);
  initializer.Fill(HashOf(key), dim, row.data());
  EXPECT_EQ(row[dim], -7.0f);  // it writes `dim` floats
  row.pop_back();
  return row;
}

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// With low = 0 and high = 1, float j is k_j / 2^24 exactly. Computed by Python's integers, with
// mix() as in mix_test.cc:
//   G, M = 0x9E3779B97F4A7C15, (1 << 64) - 1
//   def k(seed, key, j):
//       state = mix(mix(key) ^ mix((seed + G) & M))
//       bits = mix((state + (j // 2 + 1) * G) & M)
//       return bits >> 40 if j % 2 == 0 else (bits >> 8) & 0xFFFFFF
struct Golden {
  uint64_t seed;
  Key key;
  float k[4];
};
constexpr Golden kGolden[] = {
    {0, 0, {5671579, 1715205, 4515256, 4714353}},
    {0, 1, {2685438, 12419869, 7656235, 9431585}},
    {42, 1, {14008006, 2702812, 3480408, 12806909}},
    {42, -1, {12361633, 11331548, 15836971, 11830668}},
    {~uint64_t{0}, Key{1} << 62, {5418038, 13374237, 7467283, 10249565}},
};

TEST(Initializer, UniformIsFrozen) {
  for (const Golden& golden : kGolden) {
    const auto uniform = Make("uniform", {0.0f, 1.0f}, golden.seed);
    for (size_t dim : {1, 3, 4}) {
      const std::vector<float> row = Fill(*uniform, golden.key, dim);
      for (size_t j = 0; j < dim; ++j) EXPECT_EQ(row[j] * 0x1p24f, golden.k[j]);
    }
  }
}

// numpy, all operands float32: low + k * ((high - low) * 2^-24), for seed 42 and the k above.
TEST(Initializer, UniformIsScaledInFloats) {
  const auto uniform = Make("uniform", {-0.05f, 0.05f}, 42);
  const uint32_t of_1[] = {0x3d09313d, 0xbd0ad03a, 0xbcefa880, 0x3cd7bcc2};
  const uint32_t of_minus_1[] = {0x3cc1fed2, 0x3c8fb2c2, 0x3d35d845, 0x3ca811c2};
  for (size_t j = 0; j < 4; ++j) {
    EXPECT_EQ(BitsOf(Fill(*uniform, 1, 4)[j]), of_1[j]);
    EXPECT_EQ(BitsOf(Fill(*uniform, -1, 4)[j]), of_minus_1[j]);
  }
}

TEST(Initializer, RowDependsOnSeedAndKeyAlone) {
  Random random;
  const auto one = Make("uniform", {-1.0f, 1.0f}, 5);
  const auto same = Make("uniform", {-1.0f, 1.0f}, 5);
  const auto other_seed = Make("uniform", {-1.0f, 1.0f}, 6);
  std::vector<Key> keys;
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 1000; ++i) {
    keys.push_back(static_cast<Key>(random.Next()));
    rows.push_back(Fill(*one, keys[i], 7));
  }
  for (int i = 999; i >= 0; --i) {
    EXPECT_EQ(Fill(*same, keys[i], 7), rows[i]);
    EXPECT_TRUE(Fill(*other_seed, keys[i], 7) != rows[i]);
    EXPECT_TRUE(rows[i] != rows[(i + 1) % 1000]);
  }
}

TEST(Initializer, NarrowRowIsThePrefixOfAWideOne) {
  const auto uniform = Make("uniform", {-0.5f, 2.0f}, 3);
  const std::vector<float> wide = Fill(*uniform, 99, 70);
  for (size_t dim = 1; dim <= 70; ++dim) {
    EXPECT_EQ(Fill(*uniform, 99, dim), std::vector<float>(wide.begin(), wide.begin() + dim));
  }
}

// A million floats of consecutive keys. A mean of n uniform values has deviation 0.289 / sqrt(n),
// a correlation 1 / sqrt(n), and the limits are five times that.
TEST(Initializer, UniformHasItsMomentsAndNoCorrelations) {
  constexpr size_t kRows = 125000;
  constexpr size_t kDim = 8;
  const auto uniform = Make("uniform", {-0.05f, 0.05f}, 0);
  std::vector<float> values(kRows * kDim);
  for (size_t i = 0; i < kRows; ++i) uniform->Fill(HashOf(i), kDim, &values[i * kDim]);
  double sum = 0, squares = 0, along_row = 0, along_keys = 0;
  float lowest = 1, highest = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = values[i] / 0.1;  // in [-0.5, 0.5)
    sum += u;
    squares += u * u;
    if (i + 1 < values.size()) along_row += u * (values[i + 1] / 0.1);
    if (i + kDim < values.size()) along_keys += u * (values[i + kDim] / 0.1);
    lowest = std::min(lowest, values[i]);
    highest = std::max(highest, values[i]);
  }
  constexpr double kN = kRows * kDim;
  EXPECT_NEAR(sum / kN, 0.0, 5 * 0.289e-3);
  EXPECT_NEAR(squares / kN, 1.0 / 12, 5 * 0.0745e-3);  // u^2 has deviation 1 / sqrt(180)
  EXPECT_NEAR(along_row / kN * 12, 0.0, 5e-3);
  EXPECT_NEAR(along_keys / kN * 12, 0.0, 5e-3);
  EXPECT_TRUE(lowest >= -0.05f && lowest < -0.0499f);
  EXPECT_TRUE(highest <= 0.05f && highest > 0.0499f);
}

TEST(Initializer, ConstantGivesEveryKeyTheValue) {
  const auto constant = Make("constant", {2.5f}, 9);
  for (Key key : {0, 1, -1}) EXPECT_EQ(Fill(*constant, key, 3), std::vector<float>(3, 2.5f));
}

TEST(Initializer, UnknownKindsAndCountsAreRefused) {
  std::unique_ptr<Initializer> initializer;
  const auto code = [&](const std::string& kind, const std::vector<float>& arguments) {
    return MakeInitializer(kind, arguments, 0, &initializer).code();
  };
  EXPECT_EQ(code("gaussian", {0, 1}), Code::kInvalidArgument);
  EXPECT_EQ(code("", {}), Code::kInvalidArgument);
  EXPECT_EQ(code("constant", {}), Code::kInvalidArgument);
  EXPECT_EQ(code("uniform", {1}), Code::kInvalidArgument);
  EXPECT_EQ(code("uniform", {1, 2, 3}), Code::kInvalidArgument);
  EXPECT_TRUE(initializer == nullptr);
  const Status status = MakeInitializer("gaussian", {0, 1}, 0, &initializer);
  EXPECT_TRUE(status.message().find("\"gaussian\" with 2 arguments") != std::string::npos);
}

}  // namespace
}  // namespace tfsparse
