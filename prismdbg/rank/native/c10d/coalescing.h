// Calls that a backend issues together (`_start_coalescing`, `_end_coalescing`): what they receive is not there before
// all of them are issued, and they have one Work.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>

#include "c10d/pending_collective.h"

namespace pybind11 {
class function;
}

namespace prismdbg {

// From here on the calling thread's calls are issued together.
void start_coalescing();
// Adds the call to them, so that it ends with them. False where none are issued together.
bool join_coalesced(const std::shared_ptr<PendingCollective>& pending);
// Calls `end`, which issues them, and returns its Work with ours around it.
c10::intrusive_ptr<c10d::Work> end_coalescing(const pybind11::function& end);

}  // namespace prismdbg
