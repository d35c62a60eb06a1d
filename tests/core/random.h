#ifndef TFSPARSE_TESTS_CORE_RANDOM_H_
#define TFSPARSE_TESTS_CORE_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <random>

namespace tfsparse {
namespace testing {

constexpr uint64_t kSeed = 20240607;

// Equal streams give equal numbers in every run and on every machine.
class Random {
 public:
  explicit Random(uint64_t stream = 0) : engine_(kSeed + stream) {}

  uint64_t Next() { return engine_(); }
  size_t Below(size_t n) { return engine_() % n; }
  bool OneIn(size_t n) { return Below(n) == 0; }
  // One of 2^24 values in [low, high].
  float Between(float low, float high) {
    return low + (high - low) * (static_cast<float>(engine_() >> 40) * 0x1p-24f);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace testing
}  // namespace tfsparse

#endif  // TFSPARSE_TESTS_CORE_RANDOM_H_
