// Each kernel: the inputs, one call of the core, the outputs.

#include <numeric>

#include "core/key_message.h"
#include "kernels/convert.h"

namespace tfsparse {
namespace {

namespace tf = ::tensorflow;

class WriteMessagesOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    Span<const Key> keys;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 0, &keys));
    Span<const int32_t> counts;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 1, &counts));
    int64_t header;
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 2, &header));
    const bool negative =
        std::any_of(counts.begin(), counts.end(), [](int32_t c) { return c < 0; });
    const auto total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    OP_REQUIRES(ctx, !negative && total == static_cast<int64_t>(keys.size()),
                tf::errors::InvalidArgument("`counts` must add up to the number of `keys`, ",
                                            keys.size(), ". Received: ", total, "."));
    std::vector<int32_t> message_counts(counts.begin(), counts.end());
    for (int32_t& count : message_counts) ++count;
    tf::Tensor* message;
    const tf::TensorShape shape({static_cast<int64_t>(keys.size() + counts.size())});
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &message));
    WriteMessages(keys, counts, header, message->flat<int64_t>().data());
    OP_REQUIRES_OK(ctx, OutputList<int32_t>(ctx, 1, message_counts));
  }
};

class ReadMessagesOp : public Kernel {
 public:
  explicit ReadMessagesOp(tf::OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("table_name", &table_name_));
  }

  void Run(tf::OpKernelContext* ctx) override {
    Span<const int64_t> message;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 0, &message));
    Span<const int32_t> message_counts;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 1, &message_counts));
    int64_t header;
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 2, &header));
    tf::Tensor* keys;
    const auto num_keys = static_cast<int64_t>(message.size() - message_counts.size());
    const tf::TensorShape shape({std::max<int64_t>(0, num_keys)});
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &keys));
    OP_REQUIRES_OK(ctx, ToTensorFlow(ReadMessages(message, message_counts, header, table_name_,
                                                  keys->flat<int64_t>().data())));
    std::vector<int32_t> counts(message_counts.begin(), message_counts.end());
    for (int32_t& count : counts) --count;
    OP_REQUIRES_OK(ctx, OutputList<int32_t>(ctx, 1, counts));
  }

 private:
  std::string table_name_;
};

TFSPARSE_REGISTER("WriteMessages", WriteMessagesOp);
TFSPARSE_REGISTER("ReadMessages", ReadMessagesOp);

}  // namespace
}  // namespace tfsparse
