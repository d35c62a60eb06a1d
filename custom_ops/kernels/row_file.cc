#include "kernels/row_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

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

tf::Status NewFile::Write(uint64_t offset, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done, offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return tf::errors::IOError(path_, errno);
    done += written;
  }
  return tf::OkStatus();
}

tf::Status NewFile::Close() {
  const int status = ::close(descriptor_);
  descriptor_ = -1;
  return status == 0 ? tf::OkStatus() : tf::errors::IOError(path_, errno);
}

tf::Status PartWriter::Flush() {
  checksum_ = tsl::crc32c::Extend(checksum_, buffer_.data(), buffer_.size());
  TF_RETURN_IF_ERROR(file_->Write(offset_, buffer_));
  offset_ += buffer_.size();
  buffer_.clear();
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
