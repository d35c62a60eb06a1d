#ifndef TFSPARSE_CORE_INITIALIZER_H_
#define TFSPARSE_CORE_INITIALIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/types.h"

namespace tfsparse {

// Gives a new row its parameters: a pure function of (seed, key), whatever the rank, the order
// or the time (golden values in tests/core/initializer_test.cc). Objects are immutable and may
// be shared by threads.
class Initializer {
 public:
  virtual ~Initializer() = default;

  // Writes `dim` floats.
  virtual void Fill(Hash hash, size_t dim, float* parameters) const = 0;
};

// `kind` and what `arguments` mean:
//   "constant"  {value}
//   "uniform"   {low, high}: low + (high - low) * k / 2^24, k uniform in [0, 2^24)
// The seed and the hash are mixed to a state, and float j comes from bits of
// Mix(state + (j / 2 + 1) * golden ratio): SplitMix64 as a counter-based generator.
Status MakeInitializer(const std::string& kind, const std::vector<float>& arguments, uint64_t seed,
                       std::unique_ptr<Initializer>* initializer);

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_INITIALIZER_H_
