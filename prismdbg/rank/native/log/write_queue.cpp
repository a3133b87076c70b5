#include "log/write_queue.h"

#include <cerrno>
#include <system_error>

namespace prismdbg {
namespace {

constexpr size_t kMostWaitingBytes = size_t{64} << 20;

}  // namespace

void WriteQueue::check() const {
  const std::lock_guard<std::mutex> lock(waiting_->mutex);
  if (!waiting_->failure.empty()) {
    throw std::system_error(EIO, std::generic_category(), waiting_->failure);
  }
}

void WriteQueue::post(size_t size_bytes, std::function<void()> task) {
  check();
  {
    const std::lock_guard<std::mutex> lock(waiting_->mutex);
    if (waiting_->size_bytes != 0 && waiting_->size_bytes + size_bytes > kMostWaitingBytes) {
      waiting_->failure = "the file system of the log does not keep up, or does not answer";
      throw std::system_error(EAGAIN, std::generic_category(), waiting_->failure);
    }
    waiting_->size_bytes += size_bytes;
  }
  const bool is_posted = background_.post([waiting = waiting_, size_bytes, task = std::move(task)] {
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
