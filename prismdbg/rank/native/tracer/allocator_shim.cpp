#include "tracer/allocator_shim.h"

#include <c10/core/CPUAllocator.h>

#include "tracer/tracer.h"

namespace prismdbg {
namespace {

constexpr uint8_t kPriority = 10;  // above torch's own

c10::Allocator* torchs = nullptr;
c10::DeleterFnPtr torchs_deleter = nullptr;

// As whoever uses raw_allocate (oneDNN) expects: a plain function whose argument is the data itself.
void free_block(void* data) {
  if (tracer().is_armed()) {
    tracer().freed(data);
  }
  torchs_deleter(data);
}

bool follow(c10::DataPtr& data) {
  return data.get() == data.get_context() && data.compare_exchange_deleter(torchs_deleter, &free_block);
}

class AllocatorShim final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    c10::DataPtr data = torchs->allocate(size_bytes);
    if (tracer().is_armed() && data.get() != nullptr && !this_thread().is_silent() && follow(data)) {
      const std::string refusal = tracer().allocated(data.get(), size_bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, refusal.empty(), refusal);
    }
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t size_bytes) const override {
    torchs->copy_data(to, from, size_bytes);
  }
};

}  // namespace

void install_allocator() {
  if (torchs != nullptr) {
    return;
  }
  c10::Allocator* found = c10::GetCPUAllocator();
  if (found->raw_deleter() == nullptr) {
    throw std::runtime_error("the CPU allocator in use cannot be followed: it has no plain deleter");
  }
  torchs = found;
  torchs_deleter = found->raw_deleter();
  static auto* shim = new AllocatorShim();
  c10::SetCPUAllocator(shim, kPriority);
}

size_t adopt_storages(const std::vector<at::Tensor>& tensors) {
  size_t adopted = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.device().is_cpu() || !tensor.has_storage()) {
      continue;
    }
    c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
    const bool is_followed = data.get() != nullptr && (data.get_deleter() == &free_block || follow(data));
    if (is_followed && tracer().add_before(data.get(), storage.nbytes())) {
      ++adopted;
    }
  }
  return adopted;
}

}  // namespace prismdbg
