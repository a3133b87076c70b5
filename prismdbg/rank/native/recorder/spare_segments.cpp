#include "recorder/spare_segments.h"

#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <system_error>
#include <utility>

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

bool SpareSegments::keep(const std::string& from, uint64_t size_bytes) {
  std::string path = folder_ + "/payload." + std::to_string(next_) + ".spare";
  if (size_bytes == 0 || rename(from.c_str(), path.c_str()) != 0) {
    return false;
  }
  ++next_;
  size_bytes_ += size_bytes;
  spares_.push_back({std::move(path), size_bytes});
  return true;
}

std::shared_ptr<Descriptor> SpareSegments::reuse(const std::string& as) {
  if (spares_.empty()) {
    return nullptr;
  }
  const Spare spare = take();
  std::shared_ptr<Descriptor> file;
  try {
    file = std::make_shared<Descriptor>(spare.path, O_RDWR);
  } catch (const std::system_error&) {  // somebody has removed it
    return nullptr;
  }
  if (!is_ours_alone(file->number()) || rename(spare.path.c_str(), as.c_str()) != 0) {
    unlink(spare.path.c_str());
    return nullptr;
  }
  return file;
}

std::vector<std::string> SpareSegments::shrink(size_t count) {
  std::vector<std::string> paths;
  while (spares_.size() > count) {
    paths.push_back(take().path);
  }
  return paths;
}

SpareSegments::Spare SpareSegments::take() {
  Spare spare = std::move(spares_.front());
  spares_.pop_front();
  size_bytes_ -= spare.size_bytes;
  return spare;
}

}  // namespace prismdbg
