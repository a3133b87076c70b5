// Clocks of the log: monotonic nanoseconds, and the wall clock to place them in time.
#pragma once

#include <cstdint>
#include <ctime>

namespace prismdbg {

inline int64_t read_clock_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

inline int64_t monotonic_ns() {
  return read_clock_ns(CLOCK_MONOTONIC);
}

inline int64_t wall_ns() {
  return read_clock_ns(CLOCK_REALTIME);
}

}  // namespace prismdbg
