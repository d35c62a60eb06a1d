#ifndef TFSPARSE_TESTS_CORE_REFERENCE_TABLE_H_
#define TFSPARSE_TESTS_CORE_REFERENCE_TABLE_H_

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/types.h"

namespace tfsparse {
namespace testing {

// An optimizer as the core is asked for one.
struct Rule {
  std::string kind = "none";
  std::vector<float> arguments;
};

// Rules written plainly, one row at a time, in the floats and the order that Optimizer promises.
// Rows are [parameters (dim) | slots].
void ReferenceInitSlots(const Rule& rule, size_t dim, std::vector<float>* row);
void ReferenceApply(const Rule& rule, size_t dim, float learning_rate, const float* gradient,
                    std::vector<float>* row);

// What a table must be after the applied batches: an unordered_map, and no plans.
class ReferenceTable {
 public:
  // New rows are drawn from [low, high) by "uniform" with `seed`; low == high is "constant".
  ReferenceTable(size_t dim, float low, float high, uint64_t seed)
      : dim_(dim), low_(low), high_(high), seed_(seed) {}

  void Bind(const Rule& rule);
  void Apply(const std::vector<Key>& keys, float learning_rate,
             const std::vector<float>& gradients);

  // Parameters. A row that is absent reads as a new one, or as `fallback`.
  std::vector<float> ReadOrNew(const std::vector<Key>& keys) const;
  std::vector<float> ReadOr(const std::vector<Key>& keys, float fallback) const;

  size_t size() const { return rows_.size(); }
  bool Contains(Key key) const { return rows_.count(key) > 0; }
  std::map<Hash, std::vector<float>> Rows() const;  // whole, in the order of their hashes

 private:
  std::vector<float> NewRow(Key key) const;

  size_t dim_;
  float low_;
  float high_;
  uint64_t seed_;
  Rule rule_;
  std::unordered_map<Key, std::vector<float>> rows_;
};

}  // namespace testing
}  // namespace tfsparse

#endif  // TFSPARSE_TESTS_CORE_REFERENCE_TABLE_H_
