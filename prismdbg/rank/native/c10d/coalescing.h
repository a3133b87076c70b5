// Calls that a backend issues together (`_start_coalescing`, `_end_coalescing`): what they receive is not there before
// all of them are issued, and they have one Work. NCCL issues those of nested groups when the outermost one ends.
// rank/c10d/together.py does the same for the Python kernels.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>

#include "c10d/pending_collective.h"

namespace pybind11 {
class function;
}

namespace prismdbg {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

// From here on the calling thread's calls are issued together, until the group's end. A group does not nest in itself:
// what it left open before, because an exception left its block, is given up.
void start_coalescing(const GroupPtr& group);
// Adds the call to them, so that it ends with them. False where none are issued together.
bool join_coalesced(const std::shared_ptr<PendingCollective>& pending);
// Calls `end`, and returns its Work: with ours around it, where that issues them.
c10::intrusive_ptr<c10d::Work> end_coalescing(const GroupPtr& group, const pybind11::function& end);

}  // namespace prismdbg
