#include "tracer/trace_place.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace prismdbg {

void Place::move(uint32_t step, uint32_t collective) {
  collective_.store((uint64_t{step} << 32) | collective, std::memory_order_relaxed);
  op_.store(0, std::memory_order_relaxed);
  thread_.store(native_thread(), std::memory_order_relaxed);
}

bool Place::is_here() const {
  return thread_.load(std::memory_order_relaxed) == native_thread();
}

Moment Place::moment() const {
  const uint64_t both = collective_.load(std::memory_order_relaxed);
  return {static_cast<uint32_t>(both >> 32), static_cast<uint32_t>(both), op_.load(std::memory_order_relaxed)};
}

Place& place() {
  static auto* pointer = new Place();
  return *pointer;
}

// A restored process has the numbers that it had; a forked child is not traced.
uint32_t native_thread() {
  static thread_local const auto number = static_cast<uint32_t>(syscall(SYS_gettid));
  return number;
}

}  // namespace prismdbg
