// What the kernels ask Python: to describe a new group, and, after a handover, to fill the outputs of a collective
// whose backend is gone. Both take Python's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace pybind11 {
class object;
}

namespace prismdbg {

// Tells Python of `group` before its first record; once for each name. Never throws.
void introduce_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group) noexcept;
void set_group_hook(const pybind11::object& callback);

// The program has destroyed its groups, and torch gives their names again: from here on the log has `suffix` behind them.
void begin_world(const std::string& suffix);
// As the log has it; `kept` may hold it.
const std::string& name_of(const c10d::ProcessGroup& group, std::string& kept);

// True once recording was handed over to a replay in this process.
bool is_handed_over();
void set_handed_over(bool handed_over);

// False where nobody could fill `outputs`. A rescuer that knows the sender of a receive from any source returns its
// rank (an int) instead of True; it is stored in `source`.
bool rescue(uint64_t record_id, const char* op, const std::vector<at::Tensor>& outputs, int& source) noexcept;
void set_rescuer(const pybind11::object& callback);

}  // namespace prismdbg
