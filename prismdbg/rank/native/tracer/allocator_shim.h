// An allocator in front of torch's for the CPU: tells the tracer of every block made and freed while it is armed.
// Once installed it stays. It passes everything through, but raises torch's OutOfMemoryError above the tracer's cap.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace prismdbg {

void install_allocator();

// Makes the blocks of storages that are there already known, and their frees seen; how many were not known yet.
// Storages whose memory is not the CPU allocator's are passed over.
size_t adopt_storages(const std::vector<at::Tensor>& tensors);

}  // namespace prismdbg
