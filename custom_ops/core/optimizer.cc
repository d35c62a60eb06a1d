#include "core/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/multiversion.h"
#include "core/optimizer_math.h"

namespace tfsparse {
namespace {

TFSPARSE_MULTIVERSION
void SgdRow(size_t dim, float learning_rate, const float* gradient, float* parameters) {
  for (size_t j = 0; j < dim; ++j) SgdElement(gradient[j], learning_rate, parameters + j);
}

TFSPARSE_MULTIVERSION
void AdagradRow(size_t dim, float learning_rate, float epsilon, const float* __restrict gradient,
                float* __restrict parameters, float* __restrict accumulator) {
  for (size_t j = 0; j < dim; ++j) {
    AdagradElement(gradient[j], learning_rate, epsilon, accumulator + j, parameters + j);
  }
}

TFSPARSE_MULTIVERSION
void AdamRow(size_t dim, float step_size, float one_minus_beta_1, float one_minus_beta_2,
             float epsilon, const float* __restrict gradient, float* __restrict parameters,
             float* __restrict m, float* __restrict v) {
  for (size_t j = 0; j < dim; ++j) {
    AdamElement(gradient[j], step_size, one_minus_beta_1, one_minus_beta_2, epsilon, m + j, v + j,
                parameters + j);
  }
}

class NoOptimizer : public Optimizer {
 public:
  std::vector<Column> slots(size_t /*dim*/) const override { return {}; }
  void InitSlots(size_t /*dim*/, float* /*slots*/) const override {}
  void Apply(size_t /*dim*/, float /*learning_rate*/, const float* /*gradient*/,
             float* /*row*/) const override {
    TFSPARSE_CHECK(false);  // Table::Apply() refuses first
  }
};

class Sgd : public Optimizer {
 public:
  std::vector<Column> slots(size_t /*dim*/) const override { return {}; }
  void InitSlots(size_t /*dim*/, float* /*slots*/) const override {}
  void Apply(size_t dim, float learning_rate, const float* gradient, float* row) const override {
    SgdRow(dim, learning_rate, gradient, row);
  }
};

class Adagrad : public Optimizer {
 public:
  Adagrad(float initial_accumulator_value, float epsilon)
      : initial_accumulator_value_(initial_accumulator_value), epsilon_(epsilon) {}

  std::vector<Column> slots(size_t dim) const override { return {{"accumulator", dim}}; }
  void InitSlots(size_t dim, float* slots) const override {
    std::fill_n(slots, dim, initial_accumulator_value_);
  }
  void Apply(size_t dim, float learning_rate, const float* gradient, float* row) const override {
    AdagradRow(dim, learning_rate, epsilon_, gradient, row, row + dim);
  }

 private:
  float initial_accumulator_value_;
  float epsilon_;
};

class Adam : public Optimizer {
 public:
  Adam(float one_minus_beta_1, float one_minus_beta_2, float epsilon)
      : one_minus_beta_1_(one_minus_beta_1),
        one_minus_beta_2_(one_minus_beta_2),
        epsilon_(epsilon) {
    // Powers by repeated multiplication: exact rules on every machine, unlike pow().
    double power_1 = 1;
    double power_2 = 1;
    do {
      power_1 *= 1 - double{one_minus_beta_1};
      power_2 *= 1 - double{one_minus_beta_2};
      corrections_.push_back(static_cast<float>(std::sqrt(1 - power_2) / (1 - power_1)));
    } while (std::max(power_1, power_2) > kNegligible && corrections_.size() < kMaxCorrections);
  }

  std::vector<Column> slots(size_t dim) const override {
    return {{"m", dim}, {"v", dim}, {"updates", 1}};
  }
  void InitSlots(size_t dim, float* slots) const override { std::fill_n(slots, 2 * dim + 1, 0.0f); }
  void Apply(size_t dim, float learning_rate, const float* gradient, float* row) const override {
    float* const m = row + dim;
    float* const v = m + dim;
    float* const t = v + dim;
    const auto updates = static_cast<size_t>(*t);
    *t = std::min(*t + 1, kMaxT);
    const float correction = corrections_[std::min(updates, corrections_.size() - 1)];
    AdamRow(dim, learning_rate * correction, one_minus_beta_1_, one_minus_beta_2_, epsilon_,
            gradient, row, m, v);
  }

 private:
  // With beta_2 = 0.999 the correction is 1 in fp32 after 18 thousand updates of a row; the
  // limit bounds the list for betas within 1e-5 of one.
  static constexpr double kNegligible = 0x1p-26;
  static constexpr size_t kMaxCorrections = size_t{1} << 20;
  static constexpr float kMaxT = 0x1p24f;  // the largest count that fp32 can count to
  float one_minus_beta_1_;
  float one_minus_beta_2_;
  float epsilon_;
  std::vector<float> corrections_;  // [t - 1] = sqrt(1 - beta_2^t) / (1 - beta_1^t)
};

// Whether the arguments are those of a rule that keeps finite rows finite.
bool AreSound(const std::string& kind, const std::vector<float>& a) {
  const auto at_least_zero = [](float x) { return x >= 0 && std::isfinite(x); };
  const auto share = [](float x) { return x > 0 && x <= 1; };
  if (kind == "adagrad") return at_least_zero(a[0]) && at_least_zero(a[1]);
  if (kind == "adam") return share(a[0]) && share(a[1]) && at_least_zero(a[2]);
  return true;
}

}  // namespace

size_t Optimizer::slot_floats(size_t dim) const {
  size_t total = 0;
  for (const Column& slot : slots(dim)) total += slot.floats;
  return total;
}

std::vector<Column> ColumnsOf(size_t dim, const Optimizer& optimizer) {
  std::vector<Column> columns = optimizer.slots(dim);
  columns.insert(columns.begin(), {"parameter", dim});
  return columns;
}

Status MakeOptimizer(const std::string& kind, const std::vector<float>& arguments,
                     std::unique_ptr<Optimizer>* optimizer) {
  if (kind == "none" && arguments.empty()) {
    *optimizer = std::make_unique<NoOptimizer>();
  } else if (kind == "sgd" && arguments.empty()) {
    *optimizer = std::make_unique<Sgd>();
  } else if (kind == "adagrad" && arguments.size() == 2) {
    *optimizer = std::make_unique<Adagrad>(arguments[0], arguments[1]);
  } else if (kind == "adam" && arguments.size() == 3) {
    *optimizer = std::make_unique<Adam>(arguments[0], arguments[1], arguments[2]);
  } else {
    return InvalidArgument(
        "Optimizers are \"none\" {}, \"sgd\" {}, \"adagrad\" {initial_accumulator_value, epsilon} "
        "and \"adam\" {1 - beta_1, 1 - beta_2, epsilon}. Received: \"" +
        kind + "\" with " + std::to_string(arguments.size()) + " arguments.");
  }
  if (!AreSound(kind, arguments)) {
    optimizer->reset();
    return InvalidArgument("The arguments of \"" + kind +
                           "\" must be finite and not negative, and betas below one.");
  }
  return Status();
}

}  // namespace tfsparse
