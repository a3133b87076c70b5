// Tensors of a call as the log wants them: their shapes encoded, their bytes contiguous in host memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

#include "recorder/fingerprint.h"

namespace prismdbg {

using TensorRefs = c10::SmallVector<const at::Tensor*, 8>;

// Appends every tensor of a tensor, a list, or a list of lists, in order. They live as long as `value`.
void collect(const c10::IValue& value, TensorRefs& tensors);

// True where there are shapes but no memory: a tracing run that must pass through untouched.
bool is_shape_only(const at::Tensor& tensor);

// Appends the log's entries, equal neighbours counted as one; returns their number.
uint32_t encode(const TensorRefs& tensors, std::string& entries);

// Bytes of tensors; keeps the copies that a strided tensor or one on a device needs. Of a sparse tensor: its parts.
class HostBytes {
 public:
  void add(const at::Tensor& tensor);
  const std::vector<Span>& spans() const { return spans_; }

 private:
  void add_sparse(const at::Tensor& tensor);

  std::vector<Span> spans_;
  std::vector<at::Tensor> copies_;
};

}  // namespace prismdbg
