#ifndef TFSPARSE_KERNELS_ROW_FILE_H_
#define TFSPARSE_KERNELS_ROW_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/platform/env.h"
#include "tsl/lib/hash/crc32c.h"

namespace tfsparse {

// A file that did not exist, to be written in places. TensorFlow's files can only be appended to;
// these are on mounted file systems anyway, for the manifest that names them is renamed into place.
class NewFile {
 public:
  static tensorflow::Status Create(const std::string& path, std::unique_ptr<NewFile>* file);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  tensorflow::Status Write(uint64_t offset, const char* bytes, size_t size);
  tensorflow::Status Close();  // when everything is on the disk

 private:
  NewFile(const std::string& path, int descriptor) : path_(path), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;  // -1: closed
};

// Writes one part of a file from its beginning to its end, through a buffer, and takes its CRC-32C.
// Several may write parts of one file by turns.
class PartWriter {
 public:
  PartWriter(NewFile* file, uint64_t offset) : file_(file), offset_(offset) {}

  // Room for the `bytes` that follow, to be filled before the next call.
  tensorflow::Status Next(size_t bytes, char** room);
  tensorflow::Status Flush();

  uint32_t checksum() const { return checksum_; }  // of what was flushed

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;

  NewFile* file_;
  uint64_t offset_;
  std::unique_ptr<char[]> buffer_;  // [capacity_]
  size_t capacity_ = 0;
  size_t used_ = 0;
  uint32_t checksum_ = 0;
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
