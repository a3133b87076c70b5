// Where the rank is, as the tracer needs it at every operator: kept by whoever counts collectives, in C++ or Python.
#pragma once

#include <atomic>
#include <cstdint>

namespace prismdbg {

struct Moment {
  uint32_t step = 0;
  uint32_t collective = 0;
  uint32_t op = 0;
  auto operator<=>(const Moment&) const = default;
};

class Place {
 public:
  // A collective or a step begins, issued by the calling thread: operators are counted there, from 1 again.
  void move(uint32_t step, uint32_t collective);
  // Operators are counted on that thread until somebody issues a collective.
  void set_thread(uint32_t thread) { thread_.store(thread, std::memory_order_relaxed); }

  bool is_here() const;
  uint32_t next_op() { return op_.fetch_add(1, std::memory_order_relaxed) + 1; }
  Moment moment() const;

 private:
  std::atomic<uint64_t> collective_{0};  // step in the upper half
  std::atomic<uint32_t> op_{0};
  std::atomic<uint32_t> thread_{0};
};

Place& place();

// The kernel's number of the calling thread.
uint32_t native_thread();

}  // namespace prismdbg
