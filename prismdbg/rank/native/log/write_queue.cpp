#include "log/write_queue.h"

#include <cerrno>
#include <system_error>

namespace prismdbg {
namespace {

constexpr size_t kMostOptionalBytes = size_t{64} << 20;
constexpr size_t kMostWaitingBytes = kMostOptionalBytes + (size_t{16} << 20);  // events go on where payloads cannot

// Larger than all the payloads that wait may be together: one such task waits besides them.
bool is_large(size_t size_bytes) {
  return size_bytes > kMostOptionalBytes;
}

}  // namespace

void WriteQueue::check() const {
  const std::lock_guard<std::mutex> lock(waiting_->mutex);
  if (!waiting_->failure.empty()) {
    throw std::system_error(EIO, std::generic_category(), waiting_->failure);
  }
}

bool WriteQueue::Waiting::has_room(size_t more_bytes, bool is_required) const {
  if (is_large(more_bytes)) {
    return !has_large;
  }
  return size_bytes + more_bytes <= (is_required ? kMostWaitingBytes : kMostOptionalBytes);
}

void WriteQueue::Waiting::add(size_t more_bytes) {
  if (is_large(more_bytes)) {
    has_large = true;
  } else {
    size_bytes += more_bytes;
  }
}

void WriteQueue::Waiting::remove(size_t done_bytes) {
  if (is_large(done_bytes)) {
    has_large = false;
  } else {
    size_bytes -= done_bytes;
  }
}

void WriteQueue::post(size_t size_bytes, std::function<void()> task, bool is_required) {
  check();
  {
    const std::lock_guard<std::mutex> lock(waiting_->mutex);
    if (!waiting_->has_room(size_bytes, is_required)) {
      const std::string refusal = "the file system of the log does not keep up, or does not answer";
      if (is_required) {
        waiting_->failure = refusal;
      }
      throw std::system_error(EAGAIN, std::generic_category(), refusal);
    }
    waiting_->add(size_bytes);
  }
  const bool is_posted = background_.post([waiting = waiting_, size_bytes, task = std::move(task)] {
    std::string failure;
    try {
      task();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    const std::lock_guard<std::mutex> lock(waiting->mutex);
    waiting->remove(size_bytes);
    if (waiting->failure.empty()) {
      waiting->failure = failure;
    }
  });
  if (!is_posted) {
    throw std::system_error(EAGAIN, std::generic_category(), "there is no thread to write the log");
  }
}

}  // namespace prismdbg
