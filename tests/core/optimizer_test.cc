#include "core/optimizer.h"

#include <cmath>
#include <limits>

#include "random.h"
#include "reference_table.h"
#include "testing.h"

namespace tfsparse {
namespace {

using testing::Random;
using testing::Rule;
using Floats = std::vector<float>;

std::unique_ptr<Optimizer> Make(const Rule& rule) {
  std::unique_ptr<Optimizer> optimizer;
  EXPECT_OK(MakeOptimizer(rule.kind, rule.arguments, &optimizer));
  return optimizer;
}

// A new row with these parameters.
Floats NewRow(const Optimizer& optimizer, Floats row) {
  const size_t dim = row.size();
  row.resize(dim + optimizer.slot_floats(dim), -7.0f);
  optimizer.InitSlots(dim, row.data() + dim);
  return row;
}

TEST(Optimizer, SgdSubtractsRateTimesGradient) {
  const auto sgd = Make({"sgd", {}});
  Floats row = NewRow(*sgd, {1.0f, 2.0f});
  EXPECT_EQ(row, (Floats{1, 2}));
  sgd->Apply(2, 0.5f, Floats{2, -4}.data(), row.data());
  EXPECT_EQ(row, (Floats{0, 4}));
}

TEST(Optimizer, AdagradDividesByTheRootOfItsAccumulator) {
  const auto adagrad = Make({"adagrad", {7.0f, 0.0f}});
  Floats row = NewRow(*adagrad, {1.0f, 2.0f});
  EXPECT_EQ(row, (Floats{1, 2, 7, 7}));
  adagrad->Apply(2, 4.0f, Floats{3, 0}.data(), row.data());
  EXPECT_EQ(row, (Floats{-2, 2, 16, 7}));  // 1 - 4 * 3 / sqrt(7 + 9)
  adagrad->Apply(2, 5.0f, Floats{3, -3}.data(), row.data());
  EXPECT_EQ(row, (Floats{-5, 5.75f, 25, 16}));  // -2 - 5 * 3 / 5, 2 + 5 * 3 / 4
}

TEST(Optimizer, AdagradAddsEpsilonInsideTheRoot) {
  const auto adagrad = Make({"adagrad", {0.0f, 7.0f}});
  Floats row = NewRow(*adagrad, {1.0f});
  adagrad->Apply(1, 4.0f, Floats{3}.data(), row.data());
  EXPECT_EQ(row, (Floats{-2, 9}));
}

// beta_1 = 1/2 and beta_2 = 3/4 make the first correction sqrt(1/4) / (1/2) = 1.
TEST(Optimizer, AdamFollowsTheVectorsWorkedByHand) {
  const auto adam = Make({"adam", {0.5f, 0.25f, 0.0f}});
  Floats row = NewRow(*adam, {1.0f, 2.0f});
  EXPECT_EQ(row, (Floats{1, 2, 0, 0, 0, 0, 0}));
  adam->Apply(2, 1.0f, Floats{2, -4}.data(), row.data());
  EXPECT_EQ(row, (Floats{0, 3, 1, -2, 1, 4, 1}));  // m = g / 2, v = g^2 / 4, t = 1
  adam->Apply(2, 1.0f, Floats{1, -2}.data(), row.data());
  // m = {1, -2}, v = {1, 4} again; sqrt(1 - 9/16) / (1 - 1/4) = 0.88191710
  EXPECT_EQ(Floats(row.begin() + 2, row.end()), (Floats{1, -2, 1, 4, 2}));
  EXPECT_NEAR(row[0], -0.8819171f, 1e-7f);
  EXPECT_NEAR(row[1], 3.8819171f, 3e-7f);
}

TEST(Optimizer, AdamAddsEpsilonOutsideTheRoot) {
  const auto adam = Make({"adam", {0.5f, 0.25f, 3.0f}});
  Floats row = NewRow(*adam, {1.0f});
  adam->Apply(1, 1.0f, Floats{2}.data(), row.data());
  EXPECT_EQ(row, (Floats{0.75f, 1, 1, 1}));  // 1 - 1 / (1 + 3)
}

TEST(Optimizer, AdamIgnoresNothingWhenItsBetasAreZero) {
  const auto adam = Make({"adam", {1.0f, 1.0f, 0.0f}});
  Floats row = NewRow(*adam, {1.0f});
  for (int i = 0; i < 3; ++i) adam->Apply(1, 0.25f, Floats{-8}.data(), row.data());
  EXPECT_EQ(row, (Floats{1.75f, -8, 64, 3}));  // every step is the rate
}

// Two rows in one run of steps, one updated at each, one at every third: each has its own t.
TEST(Optimizer, AdamCountsTheUpdatesOfEachRow) {
  const auto adam = Make({"adam", {0.1f, 0.001f, 1e-7f}});
  Floats each = NewRow(*adam, {1.0f});
  Floats third = each;
  Floats alone = each;
  for (int step = 0; step < 30; ++step) {
    const Floats gradient = {static_cast<float>(step % 3 == 0 ? step : -1)};
    adam->Apply(1, 0.1f, gradient.data(), each.data());
    if (step % 3 == 0) adam->Apply(1, 0.1f, gradient.data(), third.data());
  }
  for (int step = 0; step < 30; step += 3) {
    adam->Apply(1, 0.1f, Floats{static_cast<float>(step)}.data(), alone.data());
  }
  EXPECT_EQ(each[3], 30.0f);
  EXPECT_EQ(third[3], 10.0f);
  EXPECT_EQ(third, alone);
}

TEST(Optimizer, AdamStaysWithADoublePrecisionReference) {
  const double beta_1 = 0.9, beta_2 = 0.999;
  const float rate = 0.01f, epsilon = 1e-7f;
  const auto adam = Make({"adam", {0.1f, 0.001f, epsilon}});
  for (int gap : {1, 2, 7}) {
    Random random;
    Floats row = NewRow(*adam, {0.5f});
    double p = 0.5, m = 0, v = 0, power_1 = 1, power_2 = 1;
    for (int step = 0; step < 1000; ++step) {
      const float g = random.Between(-1.0f, 1.5f);
      if (step % gap != 0) continue;
      adam->Apply(1, rate, &g, row.data());
      power_1 *= beta_1;
      power_2 *= beta_2;
      m = beta_1 * m + (1 - beta_1) * g;
      v = beta_2 * v + (1 - beta_2) * g * g;
      p -= rate * (m / (1 - power_1)) / (std::sqrt(v / (1 - power_2)) + epsilon);
      ASSERT_TRUE(std::abs(row[0] - p) < 2e-5);
    }
    EXPECT_NEAR(row[1], m, 1e-6);
    EXPECT_NEAR(row[2], v, 1e-6);
  }
}

// Beyond the stored corrections, where beta^t no longer counts, the correction is 1.
TEST(Optimizer, AdamGoesOnAfterItsCorrectionsEnd) {
  const auto adam = Make({"adam", {0.5f, 0.5f, 0.0f}});
  Floats row = NewRow(*adam, {0.0f});
  for (int i = 0; i < 100; ++i) adam->Apply(1, 1.0f, Floats{1}.data(), row.data());
  const float before = row[0];
  adam->Apply(1, 1.0f, Floats{1}.data(), row.data());
  EXPECT_EQ(before - row[0], 1.0f);
  EXPECT_EQ(row[3], 101.0f);
  row[3] = 16777216.0f;  // 2^24, where a float stops counting
  adam->Apply(1, 1.0f, Floats{1}.data(), row.data());
  EXPECT_EQ(row[3], 16777216.0f);
  EXPECT_EQ(before - row[0], 2.0f);
}

// The core compiles its loops for several instruction sets; this file compiles plain ones.
TEST(Optimizer, EveryWidthGivesTheBitsOfThePlainLoop) {
  for (const Rule& rule :
       {Rule{"sgd", {}}, Rule{"adagrad", {0.1f, 1e-7f}}, Rule{"adam", {0.1f, 0.001f, 1e-7f}}}) {
    const auto optimizer = Make(rule);
    Random random;
    for (size_t dim = 1; dim <= 70; ++dim) {
      Floats parameters;
      for (size_t j = 0; j < dim; ++j) parameters.push_back(random.Between(-1, 1));
      Floats row = NewRow(*optimizer, parameters);
      Floats reference = parameters;
      testing::ReferenceInitSlots(rule, dim, &reference);
      ASSERT_EQ(row, reference);
      row.push_back(-7.0f);  // what follows a row stays
      for (int step = 0; step < 5; ++step) {
        Floats gradient;
        for (size_t j = 0; j < dim; ++j) gradient.push_back(random.Between(-3, 3));
        optimizer->Apply(dim, 0.03f, gradient.data(), row.data());
        testing::ReferenceApply(rule, dim, 0.03f, gradient.data(), &reference);
      }
      EXPECT_EQ(row.back(), -7.0f);
      row.pop_back();
      ASSERT_EQ(row, reference);
    }
  }
}

TEST(Optimizer, UnknownKindsAndCountsAreRefused) {
  std::unique_ptr<Optimizer> optimizer;
  const auto code = [&](const std::string& kind, const Floats& arguments) {
    return MakeOptimizer(kind, arguments, &optimizer).code();
  };
  EXPECT_EQ(code("lion", {}), Code::kInvalidArgument);
  EXPECT_EQ(code("", {}), Code::kInvalidArgument);
  EXPECT_EQ(code("none", {1}), Code::kInvalidArgument);
  EXPECT_EQ(code("sgd", {0.1f}), Code::kInvalidArgument);
  EXPECT_EQ(code("adagrad", {0.1f}), Code::kInvalidArgument);
  EXPECT_EQ(code("adam", {0.1f, 0.001f}), Code::kInvalidArgument);
  EXPECT_TRUE(optimizer == nullptr);
  EXPECT_EQ(code("adam", {0.0f, 0.001f, 1e-7f}), Code::kInvalidArgument);  // beta_1 = 1
  EXPECT_EQ(code("adam", {0.1f, 1.5f, 1e-7f}), Code::kInvalidArgument);
  EXPECT_EQ(code("adam", {0.1f, 0.001f, -1.0f}), Code::kInvalidArgument);
  EXPECT_EQ(code("adagrad", {0.1f, std::numeric_limits<float>::quiet_NaN()}),
            Code::kInvalidArgument);
  EXPECT_TRUE(optimizer == nullptr);
  const Status status = MakeOptimizer("lion", {1, 2}, &optimizer);
  EXPECT_TRUE(status.message().find("\"lion\" with 2 arguments") != std::string::npos);
}

}  // namespace
}  // namespace tfsparse
