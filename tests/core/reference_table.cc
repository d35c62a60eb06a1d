#include "reference_table.h"

#include <cmath>

#include "core/mix.h"

namespace tfsparse {
namespace testing {

void ReferenceInitSlots(const Rule& rule, size_t dim, std::vector<float>* row) {
  row->resize(dim);
  if (rule.kind == "adagrad") row->resize(2 * dim, rule.arguments[0]);
  if (rule.kind == "adam") row->resize(3 * dim + 1, 0.0f);
}

void ReferenceApply(const Rule& rule, size_t dim, float learning_rate, const float* gradient,
                    std::vector<float>* row) {
  float* const p = row->data();
  float step_size = 0;
  if (rule.kind == "adam") {
    float& t = p[3 * dim];
    t += 1;
    double power_1 = 1;
    double power_2 = 1;
    for (int i = 0; i < t; ++i) {
      power_1 *= 1 - double{rule.arguments[0]};
      power_2 *= 1 - double{rule.arguments[1]};
    }
    step_size = learning_rate * static_cast<float>(std::sqrt(1 - power_2) / (1 - power_1));
  }
  for (size_t j = 0; j < dim; ++j) {
    const float g = gradient[j];
    if (rule.kind == "sgd") {
      p[j] = p[j] - learning_rate * g;
    } else if (rule.kind == "adagrad") {
      float& accumulator = p[dim + j];
      accumulator = accumulator + g * g;
      p[j] = p[j] - learning_rate * g / std::sqrt(accumulator + rule.arguments[1]);
    } else {
      float& m = p[dim + j];
      float& v = p[2 * dim + j];
      m = m + (g - m) * rule.arguments[0];
      v = v + (g * g - v) * rule.arguments[1];
      p[j] = p[j] - m * step_size / (std::sqrt(v) + rule.arguments[2]);
    }
  }
}

void ReferenceTable::Bind(const Rule& rule) {
  rule_ = rule;
  for (auto& [key, row] : rows_) ReferenceInitSlots(rule, dim_, &row);
}

std::vector<float> ReferenceTable::NewRow(Key key) const {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const uint64_t state = Mix(HashOf(key) ^ Mix(seed_ + kGolden));
  std::vector<float> row;
  for (size_t j = 0; j < dim_; ++j) {
    const uint64_t bits = Mix(state + (j / 2 + 1) * kGolden);
    const auto k = static_cast<float>((j % 2 == 0 ? bits >> 40 : bits >> 8) & 0xffffff);
    row.push_back(low_ + k * ((high_ - low_) * 0x1p-24f));
  }
  ReferenceInitSlots(rule_, dim_, &row);
  return row;
}

void ReferenceTable::Apply(const std::vector<Key>& keys, float learning_rate,
                           const std::vector<float>& gradients) {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!Contains(keys[i])) rows_[keys[i]] = NewRow(keys[i]);
    ReferenceApply(rule_, dim_, learning_rate, &gradients[i * dim_], &rows_[keys[i]]);
  }
}

std::vector<float> ReferenceTable::ReadOrNew(const std::vector<Key>& keys) const {
  std::vector<float> out;
  for (Key key : keys) {
    const std::vector<float> row = Contains(key) ? rows_.at(key) : NewRow(key);
    out.insert(out.end(), row.begin(), row.begin() + dim_);
  }
  return out;
}

std::vector<float> ReferenceTable::ReadOr(const std::vector<Key>& keys, float fallback) const {
  std::vector<float> out;
  for (Key key : keys) {
    const std::vector<float> row =
        Contains(key) ? rows_.at(key) : std::vector<float>(dim_, fallback);
    out.insert(out.end(), row.begin(), row.begin() + dim_);
  }
  return out;
}

std::map<Hash, std::vector<float>> ReferenceTable::Rows() const {
  std::map<Hash, std::vector<float>> rows;
  for (const auto& [key, row] : rows_) rows[HashOf(key)] = row;
  return rows;
}

}  // namespace testing
}  // namespace tfsparse
