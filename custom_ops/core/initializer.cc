#include "core/initializer.h"

#include <algorithm>

#include "core/mix.h"

namespace tfsparse {
namespace {

class ConstantInitializer : public Initializer {
 public:
  explicit ConstantInitializer(float value) : value_(value) {}
  void Fill(Hash /*hash*/, size_t dim, float* parameters) const override {
    std::fill_n(parameters, dim, value_);
  }

 private:
  float value_;
};

class UniformInitializer : public Initializer {
 public:
  UniformInitializer(float low, float high, uint64_t seed)
      : low_(low), step_((high - low) * 0x1p-24f), seed_mix_(Mix(seed + kGolden)) {}

  void Fill(Hash hash, size_t dim, float* parameters) const override {
    uint64_t state = Mix(hash ^ seed_mix_);
    for (size_t j = 0; j < dim; j += 2) {
      state += kGolden;
      const uint64_t bits = Mix(state);
      parameters[j] = low_ + static_cast<float>(bits >> 40) * step_;
      if (j + 1 < dim) {
        parameters[j + 1] = low_ + static_cast<float>((bits >> 8) & 0xffffff) * step_;
      }
    }
  }

 private:
  static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  float low_;
  float step_;
  uint64_t seed_mix_;
};

}  // namespace

Status MakeInitializer(const std::string& kind, const std::vector<float>& arguments, uint64_t seed,
                       std::unique_ptr<Initializer>* initializer) {
  if (kind == "constant" && arguments.size() == 1) {
    *initializer = std::make_unique<ConstantInitializer>(arguments[0]);
  } else if (kind == "uniform" && arguments.size() == 2) {
    *initializer = std::make_unique<UniformInitializer>(arguments[0], arguments[1], seed);
  } else {
    return InvalidArgument(
        "Initializers are \"constant\" {value} and \"uniform\" {low, high}. "
        "Received: \"" +
        kind + "\" with " + std::to_string(arguments.size()) + " arguments.");
  }
  return Status();
}

}  // namespace tfsparse
