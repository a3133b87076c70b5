#include "process/stderr.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>

namespace prismdbg {
namespace {

struct OpenFile {
  dev_t device;
  ino_t number;
  dev_t kind;

  bool operator==(const OpenFile& other) const {
    return device == other.device && number == other.number && kind == other.kind;
  }
};

std::optional<OpenFile> stderr_now() {
  struct stat status {};
  if (fstat(STDERR_FILENO, &status) != 0) {
    return std::nullopt;
  }
  return OpenFile{status.st_dev, status.st_ino, status.st_rdev};
}

std::optional<OpenFile>& stderr_at_start() {
  static std::optional<OpenFile> file;
  return file;
}

}  // namespace

void remember_stderr() {
  stderr_at_start() = stderr_now();
}

void say_on_stderr(const std::string& line) {
  const auto now = stderr_now();
  if (now && stderr_at_start() && *now == *stderr_at_start()) {
    [[maybe_unused]] const auto said = ::write(STDERR_FILENO, line.data(), line.size());
  }
}

}  // namespace prismdbg
