#include "kernels/row_file.h"

namespace tfsparse {

namespace tf = ::tensorflow;

tf::Status PartWriter::Open(tf::Env* env, const std::string& path,
                            std::unique_ptr<PartWriter>* writer) {
  std::unique_ptr<tf::WritableFile> file;
  TF_RETURN_IF_ERROR(env->NewWritableFile(path, &file));
  writer->reset(new PartWriter(std::move(file)));
  return tf::OkStatus();
}

tf::Status PartWriter::Next(size_t bytes, char** room) {
  if (!buffer_.empty() && buffer_.size() + bytes > kBufferBytes) TF_RETURN_IF_ERROR(Flush());
  if (buffer_.capacity() < kBufferBytes) buffer_.reserve(kBufferBytes);
  const size_t used = buffer_.size();
  buffer_.resize(used + bytes);
  *room = &buffer_[used];
  return tf::OkStatus();
}

tf::Status PartWriter::EndPart() {
  TF_RETURN_IF_ERROR(Flush());
  checksums_.push_back(checksum_);
  checksum_ = 0;
  return tf::OkStatus();
}

tf::Status PartWriter::Close() { return file_->Close(); }

tf::Status PartWriter::Flush() {
  checksum_ = tsl::crc32c::Extend(checksum_, buffer_.data(), buffer_.size());
  TF_RETURN_IF_ERROR(file_->Append(buffer_));
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
