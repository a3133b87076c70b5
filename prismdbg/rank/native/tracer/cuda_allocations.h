// Follows torch's caching allocator for CUDA. Compiled only where CUDA's headers are (`build.py`).
#pragma once

namespace prismdbg {

// From here on the tracer is told of CUDA's blocks and segments, and knows those that are there. False where CUDA is not
// initialized, which it stays. Throws where the allocator in use cannot be followed.
bool follow_cuda();

}  // namespace prismdbg
