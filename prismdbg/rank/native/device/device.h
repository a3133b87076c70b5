// One device as the recorder uses it: the kernel, and places for what it finds. Made when the first collective of that
// device is recorded; needs about a megabyte of it, which torch's allocator does not count.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/driver.h"
#include "recorder/fingerprint.h"

namespace prismdbg {

// As in scan_kernel.cu. One is in the device's memory, the other in the host's, which the device writes.
struct Partial {
  uint64_t sum;
  uint32_t nonfinite;
  uint32_t blocks;
};
struct Result {
  uint64_t sum;
  uint32_t nonfinite;
  uint32_t zeros;
};

class Device {
 public:
  // Throws std::runtime_error where the device cannot be used.
  explicit Device(int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  CuHandle context() const { return context_; }
  // So many places, or none where they are all in use.
  std::optional<std::vector<uint32_t>> take_places(size_t count);
  void give_back(const std::vector<uint32_t>& places);
  // Of a place whose scan has ended.
  const Result& result(uint32_t place) const { return results_[place]; }
  // Begins a scan of contiguous bytes behind what `stream` has to do. In the device's context.
  void scan(const Span& tensor, bool with_sum, uint32_t place, CuHandle stream) const;
  // Events are used again. In the device's context.
  CuHandle event();
  void give_back(CuHandle event);

 private:
  CuHandle context_ = nullptr;
  CuHandle function_ = nullptr;
  CuAddress weights_ = 0;
  CuAddress partials_ = 0;
  Result* results_ = nullptr;
  std::mutex mutex_;  // guards what follows
  std::vector<uint32_t> free_;
  std::vector<CuHandle> events_;
};

}  // namespace prismdbg
