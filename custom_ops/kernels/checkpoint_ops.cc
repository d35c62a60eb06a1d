// The kernels by which the rows of a table go to files and come back.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/mix.h"
#include "core/ownership.h"
#include "core/prefetch.h"
#include "core/row_loader.h"
#include "kernels/convert.h"
#include "kernels/row_file.h"
#include "kernels/table_resource.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace tfsparse {
namespace {

namespace tf = ::tensorflow;
using TablePtr = tf::core::RefCountPtr<TableResource>;

// How many rows ahead a loop over rows prefetches.
constexpr size_t kAhead = 16;
// Bytes of rows that are put together at a time, so that they stay in the second-level cache.
constexpr size_t kBlockBytes = size_t{256} << 10;

class DescribeOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    const auto [kind, arguments] = table->table()->optimizer();
    std::vector<tf::tstring> names;
    std::vector<int64_t> floats;
    for (const Column& column : table->table()->columns()) {
      names.emplace_back(column.name);
      floats.push_back(static_cast<int64_t>(column.floats));
    }
    tf::Tensor* optimizer;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({}), &optimizer));
    optimizer->scalar<tf::tstring>()() = kind;
    OP_REQUIRES_OK(ctx, OutputList<float>(ctx, 1, arguments));
    OP_REQUIRES_OK(ctx, OutputList<tf::tstring>(ctx, 2, names));
    OP_REQUIRES_OK(ctx, OutputList<int64_t>(ctx, 3, floats));
  }
};

class CountByBucketOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    OP_REQUIRES_OK(ctx, OutputList<int64_t>(ctx, 0, table->table()->CountByBucket()));
  }
};

// Writes a prefix, the keys, and each column of the rows; sets the checksum of each. A row is
// looked at once: in the order of hashes it is anywhere in memory.
tf::Status WriteAll(const std::string& prefix, Span<const Table::StillRow> rows,
                    const std::vector<Column>& columns, NewFile* file,
                    std::vector<int64_t>* checksums) {
  std::vector<PartWriter> writers;
  writers.emplace_back(file, 0);
  writers.emplace_back(file, prefix.size());
  uint64_t offset = prefix.size() + rows.size() * sizeof(Key);
  size_t row_bytes = 0;
  for (const Column& column : columns) {
    writers.emplace_back(file, offset);
    offset += rows.size() * column.floats * sizeof(float);
    row_bytes += column.floats * sizeof(float);
  }
  char* room;
  TF_RETURN_IF_ERROR(writers[0].Next(prefix.size(), &room));
  std::memcpy(room, prefix.data(), prefix.size());
  const size_t block = std::max<size_t>(1, kBlockBytes / row_bytes);
  std::vector<char*> to(columns.size());
  for (size_t begin = 0; begin < rows.size(); begin += block) {
    const size_t end = std::min(begin + block, rows.size());
    TF_RETURN_IF_ERROR(writers[1].Next((end - begin) * sizeof(Key), &room));
    for (size_t c = 0; c < columns.size(); ++c) {
      const size_t bytes = columns[c].floats * sizeof(float);
      TF_RETURN_IF_ERROR(writers[c + 2].Next((end - begin) * bytes, &to[c]));
    }
    for (size_t i = begin; i < end; ++i) {
      if (i + kAhead < rows.size()) PrefetchRow(rows[i + kAhead].floats, row_bytes);
      const Key key = KeyOf(rows[i].hash);
      std::memcpy(room + (i - begin) * sizeof(Key), &key, sizeof(Key));
      const float* floats = rows[i].floats;
      for (size_t c = 0; c < columns.size(); ++c) {
        const size_t bytes = columns[c].floats * sizeof(float);
        std::memcpy(to[c], floats, bytes);
        to[c] += bytes;
        floats += columns[c].floats;
      }
    }
  }
  for (PartWriter& writer : writers) {
    TF_RETURN_IF_ERROR(writer.Flush());
    checksums->push_back(writer.checksum());
  }
  return file->Close();
}

class WriteRowsOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    tf::tstring path, prefix;
    int64_t first, last, num_rows;
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 1, &path));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 2, &prefix));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 3, &first));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 4, &last));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 5, &num_rows));
    OP_REQUIRES(
        ctx, first >= 0 && first < last && last <= kNumBuckets,
        tf::errors::InvalidArgument("Buckets must be in [0, ", kNumBuckets,
                                    "), at least one. Received: [", first, ", ", last, ")."));
    std::unique_ptr<NewFile> file;
    OP_REQUIRES_OK(ctx, NewFile::Create(path, &file));
    tf::Status status;
    std::vector<int64_t> checksums;
    const BucketRange buckets{static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
    table->table()->WithRows(buckets, [&](Span<const Table::StillRow> rows,
                                          const std::vector<Column>& columns) {
      if (static_cast<int64_t>(rows.size()) != num_rows) {
        status = tf::errors::FailedPrecondition(
            "Table '", table->table()->options().name, "' was trained while it was saved: it had ",
            num_rows, " rows in some buckets and has ", rows.size(), ". Save between steps.");
        return;
      }
      status = WriteAll(prefix, rows, columns, file.get(), &checksums);
    });
    OP_REQUIRES_OK(ctx, status);
    OP_REQUIRES_OK(ctx, OutputList<int64_t>(ctx, 0, checksums));
  }
};

class ChecksumOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    tf::tstring path;
    int64_t begin, end;
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 0, &path));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 1, &begin));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 2, &end));
    std::unique_ptr<tf::RandomAccessFile> file;
    OP_REQUIRES_OK(ctx, ctx->env()->NewRandomAccessFile(path, &file));
    PartReader reader(file.get(), begin);
    for (int64_t at = begin; at < end; at += kBlockBytes) {
      const char* unused;
      OP_REQUIRES_OK(ctx, reader.Read(std::min<int64_t>(kBlockBytes, end - at), &unused));
    }
    tf::Tensor* checksum;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({}), &checksum));
    checksum->scalar<int64_t>()() = reader.checksum();
  }
};

// A loader as the value of a variant tensor; copies share it.
struct LoaderVariant {
  std::shared_ptr<std::unique_ptr<RowLoader>> loader;  // null inside when it was used up

  std::string TypeName() const { return "tfsparse::RowLoader"; }
  std::string DebugString() const { return "tfsparse row loader"; }
  void Encode(tf::VariantTensorData* data) const { data->set_type_name(TypeName()); }
  bool Decode(const tf::VariantTensorData&) { return false; }
};

tf::Status LoaderFrom(tf::OpKernelContext* ctx, int i, std::unique_ptr<RowLoader>** loader) {
  tf::Variant variant;
  TF_RETURN_IF_ERROR(ScalarFrom(ctx, i, &variant));
  const auto* held = variant.get<LoaderVariant>();
  if (held == nullptr || *held->loader == nullptr) {
    return tf::errors::InvalidArgument("`loader` must come from Tfsparse>RowLoader and be used ",
                                       "once. Received: ", variant.DebugString(), ".");
  }
  *loader = held->loader.get();
  return tf::OkStatus();
}

class RowLoaderOp : public Kernel {
 public:
  explicit RowLoaderOp(tf::OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer", &optimizer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("arguments", &arguments_));
  }

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    int64_t num_rows;
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 1, &num_rows));
    OP_REQUIRES(
        ctx, num_rows >= 0,
        tf::errors::InvalidArgument("`num_rows` must not be negative. Received: ", num_rows, "."));
    auto loader = std::make_shared<std::unique_ptr<RowLoader>>();
    OP_REQUIRES_OK(ctx, ToTensorFlow(RowLoader::Create(*table->table(), optimizer_, arguments_,
                                                       num_rows, loader.get())));
    tf::Tensor* output;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({}), &output));
    output->scalar<tf::Variant>()() = LoaderVariant{std::move(loader)};
  }

 private:
  std::string optimizer_;
  std::vector<float> arguments_;
};

class ReadRowsOp : public Kernel {
 public:
  explicit ReadRowsOp(tf::OpKernelConstruction* ctx) : Kernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("columns", &columns_));
  }

  void Run(tf::OpKernelContext* ctx) override {
    std::unique_ptr<RowLoader>* held;
    OP_REQUIRES_OK(ctx, LoaderFrom(ctx, 0, &held));
    tf::tstring path;
    int64_t num_rows, begin, end, first;
    Span<const int64_t> offsets, checksums;
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 1, &path));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 2, &num_rows));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 3, &begin));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 4, &end));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 5, &first));
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 6, &offsets));
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 7, &checksums));
    const auto room = static_cast<int64_t>((*held)->num_rows());
    OP_REQUIRES(ctx,
                0 <= begin && begin <= end && end <= num_rows && 0 <= first &&
                    first + (end - begin) <= room && offsets.size() == columns_.size() + 1 &&
                    checksums.size() == columns_.size() + 1,
                tf::errors::InvalidArgument("Rows [", begin, ", ", end, ") of ", num_rows,
                                            " do not fit into ", room, " from ", first, " on."));
    std::unique_ptr<tf::RandomAccessFile> file;
    OP_REQUIRES_OK(ctx, ctx->env()->NewRandomAccessFile(path, &file));
    std::vector<PartReader> readers;  // of the keys, and of each column
    for (int64_t offset : offsets) readers.emplace_back(file.get(), offset);
    OP_REQUIRES_OK(ctx, Load(num_rows, begin, end, first, &readers, held->get()));
    for (size_t i = 0; i < readers.size(); ++i) {
      OP_REQUIRES(ctx, readers[i].checksum() == checksums[i],
                  tf::errors::DataLoss("'", path, "' was altered after it was written: \"",
                                       i == 0 ? "keys" : columns_[i - 1],
                                       "\" has another checksum than the manifest says."));
    }
  }

 private:
  // Reads the file in blocks of whole rows, and hands those in [begin, end) to the loader.
  tf::Status Load(int64_t num_rows, int64_t begin, int64_t end, int64_t first,
                  std::vector<PartReader>* readers, RowLoader* loader) const {
    std::vector<size_t> numbers;  // of the columns that are read
    size_t row_bytes = sizeof(Key);
    for (const std::string& name : columns_) {
      const auto& columns = loader->columns();
      const auto it = std::find_if(columns.begin(), columns.end(),
                                   [&](const Column& column) { return column.name == name; });
      if (it == columns.end()) {
        return tf::errors::InvalidArgument("The rows of the table have no \"", name, "\".");
      }
      numbers.push_back(it - columns.begin());
      row_bytes += it->floats * sizeof(float);
    }
    if (numbers.size() < loader->columns().size()) loader->InitSlots(first, end - begin);
    const int64_t block = std::max<int64_t>(1, kBlockBytes / row_bytes);
    for (int64_t start = 0; start < num_rows; start += block) {
      const int64_t n = std::min(block, num_rows - start);
      // The rows of the block that are taken are [skip, skip + taken).
      const int64_t skip = std::clamp<int64_t>(begin - start, 0, n);
      const int64_t taken = std::clamp<int64_t>(end - start, skip, n) - skip;
      const int64_t number = first + start + skip - begin;
      const char* bytes;
      TF_RETURN_IF_ERROR((*readers)[0].Read(n * sizeof(Key), &bytes));
      if (taken > 0) {
        loader->SetKeys(number,
                        {reinterpret_cast<const Key*>(bytes) + skip, static_cast<size_t>(taken)});
      }
      for (size_t i = 0; i < numbers.size(); ++i) {
        const size_t floats = loader->columns()[numbers[i]].floats;
        TF_RETURN_IF_ERROR((*readers)[i + 1].Read(n * floats * sizeof(float), &bytes));
        if (taken == 0) continue;
        loader->SetColumn(numbers[i], number, taken,
                          reinterpret_cast<const float*>(bytes) + skip * floats);
      }
    }
    return tf::OkStatus();
  }

  std::vector<std::string> columns_;
};

class FinishLoaderOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    std::unique_ptr<RowLoader>* held;
    OP_REQUIRES_OK(ctx, LoaderFrom(ctx, 0, &held));
    PoolExecutor executor(ctx);
    OP_REQUIRES_OK(ctx, ToTensorFlow((*held)->Finish(&executor)));
  }
};

class LoadRowsOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    Span<const Key> keys;
    tf::tstring optimizer;
    Span<const float> arguments;
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 1, &keys));
    OP_REQUIRES_OK(ctx, ScalarFrom(ctx, 3, &optimizer));
    OP_REQUIRES_OK(ctx, ListFrom(ctx, 4, &arguments));
    auto [kind, kind_arguments] = table->table()->optimizer();
    const bool without_slots = optimizer == "none";
    if (!without_slots || kind == "none") {
      kind = optimizer;
      kind_arguments.assign(arguments.begin(), arguments.end());
    }
    std::unique_ptr<RowLoader> loader;
    OP_REQUIRES_OK(ctx, ToTensorFlow(RowLoader::Create(*table->table(), kind, kind_arguments,
                                                       keys.size(), &loader)));
    size_t floats = 0;
    for (const Column& column : loader->columns()) floats += column.floats;
    const float* rows;
    OP_REQUIRES_OK(
        ctx, RowsFrom(ctx, 2, keys.size(), without_slots ? table->table()->dim() : floats, &rows));
    loader->SetKeys(0, keys);
    if (without_slots) {
      loader->SetColumn(0, 0, keys.size(), rows);
      loader->InitSlots(0, keys.size());
    } else {
      loader->SetRows(0, keys.size(), rows);
    }
    PoolExecutor executor(ctx);
    OP_REQUIRES_OK(ctx, ToTensorFlow(loader->Finish(&executor)));
    OP_REQUIRES_OK(ctx, ToTensorFlow(table->table()->Replace(std::move(loader))));
    table->DropPlans();
  }
};

class ReplaceRowsOp : public Kernel {
 public:
  using Kernel::Kernel;

  void Run(tf::OpKernelContext* ctx) override {
    TablePtr table;
    OP_REQUIRES_OK(ctx, GetTable(ctx, &table));
    std::unique_ptr<RowLoader>* held;
    OP_REQUIRES_OK(ctx, LoaderFrom(ctx, 1, &held));
    OP_REQUIRES_OK(ctx, ToTensorFlow(table->table()->Replace(std::move(*held))));
    table->DropPlans();
  }
};

TFSPARSE_REGISTER("Describe", DescribeOp);
TFSPARSE_REGISTER("CountByBucket", CountByBucketOp);
TFSPARSE_REGISTER("WriteRows", WriteRowsOp);
TFSPARSE_REGISTER("Checksum", ChecksumOp);
TFSPARSE_REGISTER("RowLoader", RowLoaderOp);
TFSPARSE_REGISTER("ReadRows", ReadRowsOp);
TFSPARSE_REGISTER("FinishLoader", FinishLoaderOp);
TFSPARSE_REGISTER("LoadRows", LoadRowsOp);
TFSPARSE_REGISTER("ReplaceRows", ReplaceRowsOp);

}  // namespace
}  // namespace tfsparse
