// Tensors of a call as the log wants them: their shapes encoded, their bytes contiguous in host memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <vector>

#include "device/look.h"
#include "recorder/fingerprint.h"

namespace prismdbg {

using TensorRefs = c10::SmallVector<const at::Tensor*, 8>;

// Appends every tensor of a tensor, a list, or a list of lists, in order. They live as long as `value`.
void collect(const c10::IValue& value, TensorRefs& tensors);

// True where there are shapes but no memory: a tracing run that must pass through untouched.
bool is_shape_only(const at::Tensor& tensor);

// Appends the log's entries, equal neighbours counted as one; returns their number.
uint32_t encode(const TensorRefs& tensors, std::string& entries);

// Where tensors can be looked at on their device. Nothing where some are elsewhere, or not contiguous, or their stream
// is not known; with `is_unreadable`, where nobody may read them: a graph captures what is done with them, so that
// nobody may wait for it, or they have lost their memory.
struct OnDevice {
  std::optional<DeviceTensors> tensors;
  bool is_unreadable = false;
};
OnDevice on_device(const TensorRefs& tensors);
// The same with no tensors.
OnDevice on_device(const c10::Device& device);
TensorRefs references(const std::vector<at::Tensor>& tensors);

// Bytes of tensors; keeps the copies that a strided tensor or one on a device needs. Of a sparse tensor: its parts.
class HostBytes {
 public:
  void add(const at::Tensor& tensor);
  void add(const std::vector<at::Tensor>& tensors);
  const std::vector<Span>& spans() const { return spans_; }

 private:
  void add_sparse(const at::Tensor& tensor);

  std::vector<Span> spans_;
  std::vector<at::Tensor> copies_;
};

}  // namespace prismdbg
