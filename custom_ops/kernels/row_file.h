#ifndef TFSPARSE_KERNELS_ROW_FILE_H_
#define TFSPARSE_KERNELS_ROW_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/platform/env.h"
#include "tsl/lib/hash/crc32c.h"

namespace tfsparse {

// Appends to a new file, through a buffer, and takes the CRC-32C of each part of it.
class PartWriter {
 public:
  static tensorflow::Status Open(tensorflow::Env* env, const std::string& path,
                                 std::unique_ptr<PartWriter>* writer);

  // The floats or bytes of the current part that follow. Room for `bytes` of them, to be filled
  // before the next call.
  tensorflow::Status Next(size_t bytes, char** room);
  tensorflow::Status EndPart();
  tensorflow::Status Close();

  const std::vector<uint32_t>& checksums() const { return checksums_; }  // of the ended parts

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;

  explicit PartWriter(std::unique_ptr<tensorflow::WritableFile> file) : file_(std::move(file)) {}
  tensorflow::Status Flush();

  std::unique_ptr<tensorflow::WritableFile> file_;
  std::string buffer_;
  uint32_t checksum_ = 0;  // of the current part
  std::vector<uint32_t> checksums_;
};

// Reads one part of a file from its beginning to its end, and takes its CRC-32C.
class PartReader {
 public:
  PartReader(tensorflow::RandomAccessFile* file, uint64_t offset) : file_(file), offset_(offset) {}

  // The next bytes; they stay until the next call.
  tensorflow::Status Read(size_t bytes, const char** read);
  uint32_t checksum() const { return checksum_; }  // of what was read so far

 private:
  tensorflow::RandomAccessFile* file_;
  uint64_t offset_;
  std::string buffer_;
  uint32_t checksum_ = 0;
};

}  // namespace tfsparse

#endif  // TFSPARSE_KERNELS_ROW_FILE_H_
