#include "recorder/spare_segment.h"

#include <sys/stat.h>

#include <csignal>
#include <cstdio>

namespace prismdbg {
namespace {

// Whether nobody else has the file open or another name for it. The kernel grants a write lease on that condition;
// should somebody open the file in that instant, the notice is a signal that is ignored by default.
bool is_ours_alone(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || status.st_nlink != 1) {
    return false;
  }
  if (fcntl(descriptor, F_SETSIG, SIGURG) != 0 || fcntl(descriptor, F_SETLEASE, F_WRLCK) != 0) {
    return false;
  }
  return fcntl(descriptor, F_SETLEASE, F_UNLCK) == 0;
}

}  // namespace

bool SpareSegment::keep(const std::string& from, uint64_t size_bytes) {
  if (size_bytes_ != 0 || size_bytes == 0 || rename(from.c_str(), path_.c_str()) != 0) {
    return false;
  }
  size_bytes_ = size_bytes;
  return true;
}

std::shared_ptr<Descriptor> SpareSegment::reuse(const std::string& as) {
  if (size_bytes_ == 0) {
    return nullptr;
  }
  auto file = std::make_shared<Descriptor>(path_, O_RDWR);
  if (!is_ours_alone(file->number()) || rename(path_.c_str(), as.c_str()) != 0) {
    drop();
    return nullptr;
  }
  size_bytes_ = 0;
  return file;
}

void SpareSegment::drop() {
  if (size_bytes_ != 0) {
    unlink(path_.c_str());
    size_bytes_ = 0;
  }
}

}  // namespace prismdbg
