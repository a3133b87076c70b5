// A library that stands in for NVIDIA's driver in tests of prismdbg/rank/native/device. It is no measurement of any device.
//
// Its device has the host's memory. What is put on a stream happens only when the test lets the stream go on (`fake_run`),
// so that a test decides what is done when. The kernel is not run: its sums are worked out here, as its source says; `make
// gpu` compares the real one with the host. Numbers and functions are those of cuda.h.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kOutOfMemory = 2;
constexpr int kNoContext = 201;
constexpr int kNotReady = 600;
constexpr int kLaunchFailed = 719;
constexpr uint64_t kBlockBytes = 4096 * 8;

struct Event {
  bool is_done = true;
};

struct Partial {
  uint64_t sum;
  uint32_t nonfinite;
  uint32_t blocks;
};

std::recursive_mutex mutex;
std::map<std::pair<void*, void*>, std::deque<std::function<bool()>>> streams;  // of a context; false: not yet
bool has_failed = false;
bool refuses_launches = false;
bool is_capturing = false;
thread_local std::vector<void*> contexts;
uint64_t host_allocations = 0;
bool refuses_host_memory = false;
std::atomic<bool> holds_host_memory{false};
std::atomic<int> making{0};  // threads that are given memory of the host now

int later(void* stream, std::function<bool()> what) {
  if (contexts.empty()) {
    return kNoContext;
  }
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  streams[{contexts.back(), stream}].push_back(std::move(what));
  return kSuccess;
}

void* context_of(int device) { return reinterpret_cast<void*>(static_cast<intptr_t>(device + 1)); }

bool has_nonfinite(uint64_t word, uint32_t lane_bits, uint64_t exponent) {
  bool found = lane_bits == 64 && (word & exponent) == exponent;
  for (uint32_t shift = 0; lane_bits > 0 && lane_bits < 64 && shift < 64; shift += lane_bits) {
    found = found || ((word >> shift) & exponent) == exponent;
  }
  return found;
}

struct Scan {
  const uint8_t* data;
  uint64_t size_bytes;
  const uint64_t* weights;
  uint64_t golden;
  uint32_t lane_bits;
  uint64_t exponent;
  Partial* result;

  void run() const {
    Partial found{};
    for (uint64_t block = 0; block < size_bytes; block += kBlockBytes) {
      uint64_t sum = 0;
      for (uint64_t at = block; at < block + kBlockBytes && at < size_bytes; at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, data + at, size_bytes - at < 8 ? size_bytes - at : 8);
        sum += weights == nullptr ? 0 : word * weights[(at - block) / 8];
        found.nonfinite |= has_nonfinite(word, lane_bits, exponent);
      }
      found.sum = found.sum * golden + sum;
    }
    *result = found;
  }
};

}  // namespace

extern "C" {

int cuDeviceGet(int* device, int number) {
  *device = number;
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = context_of(device);
  return kSuccess;
}
int cuCtxPushCurrent_v2(void* context) { return contexts.push_back(context), kSuccess; }
int cuCtxPopCurrent_v2(void**) { return contexts.pop_back(), kSuccess; }
int cuModuleLoadData(void** module, const void* ptx) {
  *module = const_cast<void*>(ptx);
  return kSuccess;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return std::strstr(static_cast<const char*>(module), name) == nullptr ? 500 : kSuccess;
}
int cuLaunchKernel(void*, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void* stream,
                   void** arguments, void**) {
  if (refuses_launches) {
    return kLaunchFailed;
  }
  const auto value = [&](int i) { return *static_cast<uint64_t*>(arguments[i]); };
  const Scan scan{reinterpret_cast<const uint8_t*>(value(0)), value(1), reinterpret_cast<const uint64_t*>(value(2)), value(3),
                  *static_cast<uint32_t*>(arguments[4]), value(5), reinterpret_cast<Partial*>(value(7))};
  if (blocks != (scan.size_bytes + kBlockBytes - 1) / kBlockBytes) {
    return 1;
  }
  return later(stream, [scan] { return scan.run(), true; });
}
int cuMemAlloc_v2(uint64_t* address, size_t size_bytes) {
  *address = reinterpret_cast<uint64_t>(std::malloc(size_bytes));
  return kSuccess;
}
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t size_bytes) {
  std::memset(reinterpret_cast<void*>(address), value, size_bytes);
  return kSuccess;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size_bytes) {
  std::memcpy(reinterpret_cast<void*>(to), from, size_bytes);
  return kSuccess;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size_bytes, void* stream) {
  return later(stream, [=] { return std::memcpy(to, reinterpret_cast<void*>(from), size_bytes), true; });
}
int cuMemHostAlloc(void** data, size_t size_bytes, unsigned) {
  ++making;
  while (holds_host_memory) {
    std::this_thread::yield();
  }
  --making;
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  ++host_allocations;
  if (refuses_host_memory) {
    return kOutOfMemory;
  }
  *data = std::malloc(size_bytes);
  return contexts.empty() ? kNoContext : kSuccess;
}
int cuEventCreate(void** event, unsigned) {
  *event = new Event();
  return kSuccess;
}
int cuEventRecord(void* event, void* stream) {
  auto* recorded = static_cast<Event*>(event);
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  recorded->is_done = false;
  return later(stream, [recorded] { return recorded->is_done = true; });
}
int cuEventQuery(void* event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return has_failed ? kLaunchFailed : static_cast<Event*>(event)->is_done ? kSuccess : kNotReady;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  return later(stream, [event] { return static_cast<Event*>(event)->is_done; });
}
int cuStreamIsCapturing(void*, int* status) {
  *status = is_capturing;
  return kSuccess;
}
int cuThreadExchangeStreamCaptureMode(int*) { return kSuccess; }
int cuGetErrorName(int, const char** name) {
  *name = "FAKE_ERROR";
  return kSuccess;
}

// What the test does.

void fake_run(int device, void* stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  auto& waiting = streams[{context_of(device), stream}];
  while (!waiting.empty() && waiting.front()()) {
    waiting.pop_front();
  }
}
void fake_put(int device, void* stream, int* counter) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  streams[{context_of(device), stream}].push_back([counter] { return ++*counter, true; });
}
void fake_fail(bool of_events, bool of_launches) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  has_failed = of_events;
  refuses_launches = of_launches;
}
void fake_refuse_host_memory(bool refuses) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  refuses_host_memory = refuses;
}
void fake_hold_host_memory(bool holds) { holds_host_memory = holds; }
int fake_making() { return making; }
uint64_t fake_host_allocations() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return host_allocations;
}
int fake_contexts() { return static_cast<int>(contexts.size()); }
}
