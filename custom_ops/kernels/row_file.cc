#include "kernels/row_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tensorflow/core/platform/errors.h"

namespace tfsparse {

namespace tf = ::tensorflow;

tf::Status NewFile::Create(const std::string& path, std::unique_ptr<NewFile>* file) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return tf::errors::IOError(path, errno);
  file->reset(new NewFile(path, descriptor));
  return tf::OkStatus();
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

tf::Status NewFile::Write(uint64_t offset, const char* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t written = ::pwrite(descriptor_, bytes + done, size - done, offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return tf::errors::IOError(path_, errno);
    done += written;
  }
  // A wish: the disk begins now, and not when the file is synced.
  ::sync_file_range(descriptor_, offset, size, SYNC_FILE_RANGE_WRITE);
  return tf::OkStatus();
}

tf::Status NewFile::Close() {
  if (::fsync(descriptor_) != 0) return tf::errors::IOError(path_, errno);
  const int status = ::close(std::exchange(descriptor_, -1));
  return status == 0 ? tf::OkStatus() : tf::errors::IOError(path_, errno);
}

tf::Status PartWriter::Next(size_t bytes, char** room) {
  if (used_ + bytes > capacity_) {
    TF_RETURN_IF_ERROR(Flush());
    if (bytes > capacity_) {
      capacity_ = std::max(bytes, kBufferBytes);
      buffer_.reset(new char[capacity_]);
    }
  }
  *room = buffer_.get() + used_;
  used_ += bytes;
  return tf::OkStatus();
}

tf::Status PartWriter::Flush() {
  if (used_ == 0) return tf::OkStatus();
  checksum_ = tsl::crc32c::Extend(checksum_, buffer_.get(), used_);
  TF_RETURN_IF_ERROR(file_->Write(offset_, buffer_.get(), used_));
  offset_ += used_;
  used_ = 0;
  return tf::OkStatus();
}

tf::Status PartReader::Read(size_t bytes, const char** read) {
  if (buffer_.size() < bytes) buffer_.resize(bytes);
  tf::StringPiece result;
  TF_RETURN_IF_ERROR(file_->Read(offset_, bytes, &result, &buffer_[0]));
  checksum_ = tsl::crc32c::Extend(checksum_, result.data(), result.size());
  offset_ += bytes;
  *read = result.data();
  return tf::OkStatus();
}

}  // namespace tfsparse
