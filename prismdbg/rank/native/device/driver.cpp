#include "device/driver.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace prismdbg {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// The library is there already where a tensor is on such a device; it is loaded by nobody for us.
bool load(Driver& found) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return library != nullptr && find(library, "cuDeviceGet", found.device_get) &&
         find(library, "cuDevicePrimaryCtxRetain", found.primary_retain) &&
         find(library, "cuCtxPushCurrent_v2", found.push) && find(library, "cuCtxPopCurrent_v2", found.pop) &&
         find(library, "cuModuleLoadData", found.load_module) &&
         find(library, "cuModuleGetFunction", found.function) && find(library, "cuLaunchKernel", found.launch) &&
         find(library, "cuMemAlloc_v2", found.allocate) && find(library, "cuMemsetD8_v2", found.fill) &&
         find(library, "cuMemcpyHtoD_v2", found.copy_to_device) &&
         find(library, "cuMemcpyDtoHAsync_v2", found.copy_to_host_later) &&
         find(library, "cuMemHostAlloc", found.allocate_host) &&
         find(library, "cuEventCreate", found.create_event) && find(library, "cuEventRecord", found.record_event) &&
         find(library, "cuEventQuery", found.query_event) && find(library, "cuStreamWaitEvent", found.wait_event) &&
         find(library, "cuStreamIsCapturing", found.is_capturing) &&
         find(library, "cuThreadExchangeStreamCaptureMode", found.exchange_capture_mode) &&
         find(library, "cuGetErrorName", found.error_name);
}

}  // namespace

const Driver* driver() {
  static const Driver* const found = []() -> const Driver* {
    static Driver functions{};
    return load(functions) ? &functions : nullptr;
  }();
  return found;
}

void require(CuResult result, const char* what) {
  if (result == kCuSuccess) {
    return;
  }
  const char* name = nullptr;
  driver()->error_name(result, &name);
  throw std::runtime_error(std::string(what) + ": " + (name == nullptr ? std::to_string(result) : name));
}

WithContext::WithContext(CuHandle context) {
  require(driver()->push(context), "cuCtxPushCurrent");
  driver()->exchange_capture_mode(&mode_);
}

WithContext::~WithContext() {
  driver()->exchange_capture_mode(&mode_);
  CuHandle ours = nullptr;
  driver()->pop(&ours);
}

}  // namespace prismdbg
