#include "log/segment.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace prismdbg {
namespace {

int allocate(int descriptor, size_t size_bytes) {
  int error = 0;
  do {
    error = posix_fallocate(descriptor, 0, static_cast<off_t>(size_bytes));
  } while (error == EINTR);
  return error;
}

}  // namespace

std::shared_ptr<Segment> Segment::create(const std::string& path, size_t size_bytes, bool must_be_new) {
  auto file = std::make_unique<Descriptor>(path, O_RDWR | O_CREAT | (must_be_new ? O_EXCL : 0));
  if (const int error = allocate(file->number(), size_bytes)) {
    unlink(path.c_str());
    throw std::system_error(error, std::generic_category(), path);
  }
  return std::shared_ptr<Segment>(new Segment(std::move(file), size_bytes));
}

std::shared_ptr<Segment> Segment::open(const std::string& path, size_t size_bytes) {
  auto file = std::make_unique<Descriptor>(path, O_RDWR);
  file->check(size_bytes);
  return std::shared_ptr<Segment>(new Segment(std::move(file), size_bytes));
}

void Segment::write(uint64_t at, std::string_view head, std::string_view rest) const {
  file_->check(size_bytes_);
  file_->write(rest.data(), rest.size(), at + head.size());
  file_->write(head.data(), head.size(), at);
}

}  // namespace prismdbg
