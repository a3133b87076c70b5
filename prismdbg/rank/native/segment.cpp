#include "segment.h"

#include <sys/mman.h>

#include "descriptor.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace prismdbg {
namespace {

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

int allocate(int descriptor, size_t size_bytes) {
  int error = 0;
  do {
    error = posix_fallocate(descriptor, 0, static_cast<off_t>(size_bytes));
  } while (error == EINTR);
  return error;
}

}  // namespace

std::shared_ptr<Segment> Segment::create(const std::string& path, size_t size_bytes, bool must_be_new) {
  Descriptor file(path, O_RDWR | O_CREAT | (must_be_new ? O_EXCL : 0));
  if (const int error = allocate(file.number(), size_bytes)) {
    unlink(path.c_str());
    fail(error, path);
  }
  return std::shared_ptr<Segment>(new Segment(file.number(), size_bytes));
}

std::shared_ptr<Segment> Segment::map(const std::string& path, size_t size_bytes) {
  Descriptor file(path, O_RDWR);
  if (lseek(file.number(), 0, SEEK_END) < static_cast<off_t>(size_bytes)) {
    fail(EIO, path + " is shorter than it was");
  }
  return std::shared_ptr<Segment>(new Segment(file.number(), size_bytes));
}

Segment::Segment(int descriptor, size_t size_bytes) : size_bytes_(size_bytes) {
  void* start = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (start == MAP_FAILED) {
    fail(errno, "mmap");
  }
  madvise(start, size_bytes, MADV_DONTFORK);
  data_ = static_cast<uint8_t*>(start);
}

Segment::~Segment() {
  munmap(data_, size_bytes_);
}

void Segment::populate() {
  if (madvise(data_, size_bytes_, MADV_POPULATE_WRITE) == 0) {
    return;
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < size_bytes_; at += page) {
    const_cast<volatile uint8_t*>(data_)[at] = 0;
  }
}

}  // namespace prismdbg
