#include "outlet.h"

#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>

namespace prismdbg {
namespace {

constexpr size_t kMostWaitingBytes = size_t{64} << 20;

// ext2 to ext4, xfs, btrfs, tmpfs, ramfs, overlayfs, f2fs, zfs, bcachefs: no server is asked. See linux/magic.h.
constexpr uint32_t kLocal[] = {0xEF53,     0x58465342, 0x9123683E, 0x01021994, 0x858458F6,
                               0x794C7630, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E};

bool is_local(const std::string& folder) {
  struct statfs status {};
  return statfs(folder.c_str(), &status) == 0 &&
         std::find(std::begin(kLocal), std::end(kLocal), static_cast<uint32_t>(status.f_type)) != std::end(kLocal);
}

}  // namespace

Outlet::Outlet(Housekeeper& housekeeper, const std::string& folder)
    : housekeeper_(housekeeper), is_direct_(is_local(folder)) {}

void Outlet::check() const {
  const std::lock_guard<std::mutex> lock(waiting_->mutex);
  if (!waiting_->failure.empty()) {
    throw std::system_error(EIO, std::generic_category(), waiting_->failure);
  }
}

void Outlet::post(size_t size_bytes, std::function<void()> task) {
  check();
  {
    const std::lock_guard<std::mutex> lock(waiting_->mutex);
    if (waiting_->size_bytes != 0 && waiting_->size_bytes + size_bytes > kMostWaitingBytes) {
      waiting_->failure = "the file system of the log does not keep up, or does not answer";
      throw std::system_error(EAGAIN, std::generic_category(), waiting_->failure);
    }
    waiting_->size_bytes += size_bytes;
  }
  const bool is_posted = housekeeper_.post([waiting = waiting_, size_bytes, task = std::move(task)] {
    std::string failure;
    try {
      task();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    const std::lock_guard<std::mutex> lock(waiting->mutex);
    waiting->size_bytes -= size_bytes;
    if (waiting->failure.empty()) {
      waiting->failure = failure;
    }
  });
  if (!is_posted) {
    throw std::system_error(EAGAIN, std::generic_category(), "there is no thread to write the log");
  }
}

}  // namespace prismdbg
