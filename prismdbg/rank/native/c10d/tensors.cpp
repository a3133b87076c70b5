#include "c10d/tensors.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "log/log_format.h"

namespace prismdbg {
namespace {

Numbers numbers_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Half:
    case c10::ScalarType::ComplexHalf: return Numbers::float16;
    case c10::ScalarType::BFloat16: return Numbers::bfloat16;
    case c10::ScalarType::Float:
    case c10::ScalarType::ComplexFloat: return Numbers::float32;
    case c10::ScalarType::Double:
    case c10::ScalarType::ComplexDouble: return Numbers::float64;
    case c10::ScalarType::Float8_e5m2: return Numbers::float8_e5m2;
    case c10::ScalarType::Float8_e4m3fn: return Numbers::float8_e4m3fn;
    case c10::ScalarType::Float8_e5m2fnuz:
    case c10::ScalarType::Float8_e4m3fnuz: return Numbers::float8_fnuz;
    case c10::ScalarType::Float8_e8m0fnu: return Numbers::float8_e8m0fnu;
    default: return Numbers::exact;
  }
}

bool same_meta(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes();
}

// A copy made by us is not an operator of the program: autograd and profilers do not see it.
at::Tensor host_copy(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::RecordFunctionGuard unseen(false);
  return (tensor.device().is_cpu() ? tensor : tensor.cpu()).contiguous();
}

}  // namespace

void collect(const c10::IValue& value, TensorRefs& tensors) {
  if (value.isTensor()) {
    tensors.push_back(&value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      collect(item, tensors);
    }
  }
}

bool is_shape_only(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_meta() || tensor.key_set().has(c10::DispatchKey::Python));
}

uint32_t encode(const TensorRefs& tensors, std::string& entries) {
  uint32_t count = 0;
  for (size_t i = 0; i < tensors.size();) {
    const at::Tensor& tensor = *tensors[i];
    TensorEntry entry{};
    while (i < tensors.size() && same_meta(tensor, *tensors[i])) {
      ++entry.repeat;
      ++i;
    }
    entry.dtype = static_cast<uint8_t>(tensor.scalar_type());
    entry.dimensions = static_cast<uint8_t>(tensor.dim());
    entries.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    entries.append(reinterpret_cast<const char*>(tensor.sizes().data()), tensor.sizes().size() * sizeof(int64_t));
    ++count;
  }
  return count;
}

OnDevice on_device(const c10::Device& device) {
  const Driver* cuda = device.is_cuda() ? driver() : nullptr;
  if (cuda == nullptr) {
    return {};
  }
  const auto* guard = c10::impl::getDeviceGuardImpl(device.type());
  DeviceTensors found{.device = device.index(), .stream = guard->getStreamNativeHandle(guard->getStream(device))};
  int capture = 0;
  if (cuda->is_capturing(found.stream, &capture) != kCuSuccess || capture != 0) {
    return {std::nullopt, true};
  }
  return {std::move(found), false};
}

OnDevice on_device(const TensorRefs& tensors) {
  if (tensors.empty()) {
    return {};
  }
  const c10::Device device = tensors[0]->device();
  OnDevice found = on_device(device);
  if (!found.tensors) {
    return found;
  }
  for (const at::Tensor* tensor : tensors) {
    if (tensor->device() != device || tensor->layout() != c10::kStrided || !tensor->is_contiguous()) {
      return {};
    }
    const void* data = tensor->nbytes() ? tensor->const_data_ptr() : nullptr;
    if (tensor->nbytes() != 0 && data == nullptr) {
      return {std::nullopt, true};
    }
    found.tensors->spans.push_back({data, tensor->nbytes(), numbers_of(tensor->scalar_type())});
  }
  return found;
}

TensorRefs references(const std::vector<at::Tensor>& tensors) {
  TensorRefs found;
  for (const at::Tensor& tensor : tensors) {
    found.push_back(&tensor);
  }
  return found;
}

void HostBytes::add(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    add(tensor);
  }
}

void HostBytes::add(const at::Tensor& tensor) {
  if (tensor.is_sparse()) {
    add_sparse(tensor);
    return;
  }
  if (tensor.layout() != c10::kStrided) {
    return;
  }
  const at::Tensor* bytes = &tensor;
  if (!tensor.device().is_cpu() || !tensor.is_contiguous()) {
    copies_.push_back(host_copy(tensor));
    bytes = &copies_.back();
  }
  const void* data = bytes->nbytes() ? bytes->const_data_ptr() : nullptr;
  spans_.push_back({data, bytes->nbytes(), numbers_of(tensor.scalar_type())});
}

// As rank/c10d/sparse.py: the number of values, the indices, the values.
void HostBytes::add_sparse(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::RecordFunctionGuard unseen(false);
  for (const at::Tensor& part : {at::scalar_tensor(tensor._nnz(), at::kLong), tensor._indices(), tensor._values()}) {
    copies_.push_back(part);
    add(part);
  }
}

}  // namespace prismdbg
