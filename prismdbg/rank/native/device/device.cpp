#include "device/device.h"

#include <numeric>

#include "device/scan_kernel.h"
#include "recorder/weights.h"

namespace prismdbg {
namespace {

constexpr uint32_t kPlaces = 8192;
constexpr size_t kBlockBytes = kBlockWords * sizeof(uint64_t);
constexpr unsigned kThreads = 256;  // of a block; the kernel has room for 8 warps

// The bits of a floating-point number's lane, and those that are all set in NaN and Inf alone.
struct Lane {
  uint32_t bits;
  uint64_t exponent;
};

Lane lane_of(Numbers numbers) {
  switch (numbers) {
    case Numbers::exact:
    case Numbers::float8_fnuz: return {0, 0};  // of devices that are none of CUDA's
    case Numbers::float8_e5m2: return {8, 0x7C};
    case Numbers::float8_e4m3fn: return {8, 0x7F};
    case Numbers::float8_e8m0fnu: return {8, 0xFF};
    case Numbers::float16: return {16, 0x7C00};
    case Numbers::bfloat16: return {16, 0x7F80};
    case Numbers::float32: return {32, 0x7F800000};
    case Numbers::float64: return {64, 0x7FF0000000000000};
  }
  return {0, 0};
}

}  // namespace

Device::Device(int index) {
  const Driver& cuda = *driver();
  CuDevice device = 0;
  require(cuda.device_get(&device, index), "cuDeviceGet");
  require(cuda.primary_retain(&context_, device), "cuDevicePrimaryCtxRetain");
  const WithContext here(context_);
  CuHandle module = nullptr;
  require(cuda.load_module(&module, kScanKernel), "cuModuleLoadData");
  require(cuda.function(&function_, module, "prismdbg_scan"), "cuModuleGetFunction");
  require(cuda.allocate(&weights_, sizeof kWeights.of), "cuMemAlloc");
  require(cuda.copy_to_device(weights_, kWeights.of.data(), sizeof kWeights.of), "cuMemcpyHtoD");
  require(cuda.allocate(&partials_, kPlaces * sizeof(Partial)), "cuMemAlloc");
  require(cuda.fill(partials_, 0, kPlaces * sizeof(Partial)), "cuMemsetD8");
  void* results = nullptr;
  require(cuda.allocate_host(&results, kPlaces * sizeof(Result), kCuHostPortable | kCuHostMapped), "cuMemHostAlloc");
  results_ = static_cast<Result*>(results);
  free_.resize(kPlaces);
  std::iota(free_.begin(), free_.end(), 0);
}

std::optional<std::vector<uint32_t>> Device::take_places(size_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.size() < count) {
    return std::nullopt;
  }
  std::vector<uint32_t> taken(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  return taken;
}

void Device::give_back(const std::vector<uint32_t>& places) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.insert(free_.end(), places.begin(), places.end());
}

void Device::scan(const Span& tensor, bool with_sum, uint32_t place, CuHandle stream) const {
  auto data = reinterpret_cast<CuAddress>(tensor.data);
  uint64_t size_bytes = tensor.size_bytes;
  CuAddress weights = with_sum ? weights_ : 0;
  uint64_t golden = kGolden;
  auto [lane_bits, exponent] = lane_of(tensor.numbers);
  CuAddress partial = partials_ + place * sizeof(Partial);
  auto result = reinterpret_cast<CuAddress>(results_ + place);
  void* arguments[] = {&data, &size_bytes, &weights, &golden, &lane_bits, &exponent, &partial, &result};
  const auto blocks = static_cast<unsigned>((size_bytes + kBlockBytes - 1) / kBlockBytes);
  require(driver()->launch(function_, blocks, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
}

CuHandle Device::event() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!events_.empty()) {
      const CuHandle known = events_.back();
      events_.pop_back();
      return known;
    }
  }
  CuHandle made = nullptr;
  require(driver()->create_event(&made, kCuEventDisableTiming), "cuEventCreate");
  return made;
}

void Device::give_back(CuHandle event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back(event);
}

}  // namespace prismdbg
