// Preloaded into a job: its wall clock is off by what stands in the file CLOCK_OFFSET_FILE, in seconds.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

namespace {
const volatile long* offset() {
  static const volatile long* mapped = [] {
    const char* path = getenv("CLOCK_OFFSET_FILE");
    const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void* start = file < 0 ? MAP_FAILED : mmap(nullptr, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    return start == MAP_FAILED ? nullptr : static_cast<const volatile long*>(start);
  }();
  return mapped;
}
template <typename F>
F real(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
}  // namespace

extern "C" int clock_gettime(clockid_t clock, struct timespec* out) {
  static const auto call = real<int (*)(clockid_t, struct timespec*)>("clock_gettime");
  const int code = call(clock, out);
  if (code == 0 && clock == CLOCK_REALTIME && offset()) out->tv_sec += *offset();
  return code;
}

extern "C" int gettimeofday(struct timeval* out, void* zone) {
  static const auto call = real<int (*)(struct timeval*, void*)>("gettimeofday");
  const int code = call(out, zone);
  if (code == 0 && offset()) out->tv_sec += *offset();
  return code;
}

extern "C" time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
