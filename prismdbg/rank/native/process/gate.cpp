#include "process/gate.h"

#include "process/gil.h"

namespace prismdbg {

void Gate::enter() {
  entering_.fetch_add(1);
  while (closed_.load()) {
    entering_.fetch_sub(1);
    wait_until_open();
    entering_.fetch_add(1);
  }
}

void Gate::wait_until_open() {
  if (!closed_.load()) {
    return;
  }
  const WithoutGil released;
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_.fetch_add(1);
  opened_.wait(lock, [this] { return !closed_.load(); });
  waiting_.fetch_sub(1);
}

void Gate::set_closed(bool closed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_.store(closed);
  opened_.notify_all();
}

}  // namespace prismdbg
