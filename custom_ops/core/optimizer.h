#ifndef TFSPARSE_CORE_OPTIMIZER_H_
#define TFSPARSE_CORE_OPTIMIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"

namespace tfsparse {

// Some of the floats that make up a row, under the name by which they are stored.
struct Column {
  std::string name;
  size_t floats;
};

// What a table does with the summed gradient of a row. It knows the layout of the slots that
// stand behind the parameters in the row; the table knows only how many floats they take.
// Objects are immutable and may be shared by threads.
//
// All rules are lazy: a row changes only in steps that have a gradient for its key.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The slots of a row, in their order.
  virtual std::vector<Column> slots(size_t dim) const = 0;
  size_t slot_floats(size_t dim) const;

  // Gives the slots of a new row their first values.
  virtual void InitSlots(size_t dim, float* slots) const = 0;

  // Updates one row, [parameters (dim) | slots], by its gradient [dim].
  virtual void Apply(size_t dim, float learning_rate, const float* gradient, float* row) const = 0;
};

// `kind`, what `arguments` mean, and the slots:
//   "none"     {}                                   no slots; cannot be applied
//   "sgd"      {}                                   no slots
//   "adagrad"  {initial_accumulator_value, epsilon} accumulator [dim]
//   "adam"     {1 - beta_1, 1 - beta_2, epsilon}    m [dim], v [dim], updates [1] of the row
// Adam takes what is left to one, because in fp32 1 - 0.999f is not 0.001f.
Status MakeOptimizer(const std::string& kind, const std::vector<float>& arguments,
                     std::unique_ptr<Optimizer>* optimizer);

// What a row consists of, in its order: "parameter", and the slots of its optimizer.
std::vector<Column> ColumnsOf(size_t dim, const Optimizer& optimizer);

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_OPTIMIZER_H_
