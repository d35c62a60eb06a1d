#ifndef TFSPARSE_KERNELS_PLAN_VARIANT_H_
#define TFSPARSE_KERNELS_PLAN_VARIANT_H_

#include <memory>
#include <string>

#include "kernels/table_resource.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace tfsparse {

// A plan as the value of a variant tensor. Copies share the plan, which ends with the last of
// them. It stands for memory of this process and can be neither serialised nor sent.
struct PlanVariant {
  std::shared_ptr<const StagedPlan> staged;

  std::string TypeName() const { return "tfsparse::Plan"; }
  std::string DebugString() const { return "tfsparse plan"; }
  void Encode(tensorflow::VariantTensorData* data) const { data->set_type_name(TypeName()); }
  bool Decode(const tensorflow::VariantTensorData&) { return false; }
};

}  // namespace tfsparse

#endif  // TFSPARSE_KERNELS_PLAN_VARIANT_H_
