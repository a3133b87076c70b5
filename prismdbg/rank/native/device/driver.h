// NVIDIA's driver, found at run time: the recorder is built without CUDA's headers and loads no library of its own.
// Types and numbers are those of cuda.h; the functions' names there begin with `cu`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prismdbg {

using CuResult = int;
using CuDevice = int;
using CuAddress = uint64_t;
using CuHandle = void*;  // of a context, a module, a function, a stream or an event

constexpr CuResult kCuSuccess = 0;
constexpr CuResult kCuNotReady = 600;
constexpr unsigned kCuEventDisableTiming = 2;
constexpr unsigned kCuHostPortable = 1;
constexpr unsigned kCuHostMapped = 2;
constexpr int kCuCaptureRelaxed = 2;

struct Driver {
  CuResult (*device_get)(CuDevice*, int);
  CuResult (*primary_retain)(CuHandle*, CuDevice);
  CuResult (*push)(CuHandle);
  CuResult (*pop)(CuHandle*);
  CuResult (*load_module)(CuHandle*, const void*);
  CuResult (*function)(CuHandle*, CuHandle, const char*);
  CuResult (*launch)(CuHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuHandle, void**, void**);
  CuResult (*allocate)(CuAddress*, size_t);
  CuResult (*fill)(CuAddress, unsigned char, size_t);
  CuResult (*copy_to_device)(CuAddress, const void*, size_t);
  CuResult (*copy_to_host_later)(void*, CuAddress, size_t, CuHandle);
  CuResult (*allocate_host)(void**, size_t, unsigned);
  CuResult (*create_event)(CuHandle*, unsigned);
  CuResult (*record_event)(CuHandle, CuHandle);
  CuResult (*query_event)(CuHandle);
  CuResult (*wait_event)(CuHandle, CuHandle, unsigned);
  CuResult (*is_capturing)(CuHandle, int*);
  CuResult (*exchange_capture_mode)(int*);
  CuResult (*error_name)(CuResult, const char**);
};

// Null where there is none, or it lacks one of these.
const Driver* driver();

// Throws std::runtime_error, which names `what` and the error.
void require(CuResult result, const char* what);

// A device's context is the calling thread's in this scope, and what it does breaks no capture of a graph by another
// thread: see cuThreadExchangeStreamCaptureMode.
class WithContext {
 public:
  explicit WithContext(CuHandle context);
  ~WithContext();
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;

 private:
  int mode_ = kCuCaptureRelaxed;
};

}  // namespace prismdbg
