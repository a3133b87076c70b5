// Boxed kernels for the operators of op_table.h at dispatch key BackendSelect.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace prismdbg {

using Positions = std::map<std::string, int>;  // of an operator's arguments, by what they are to us
using PositionsByName = std::map<std::string, Positions>;

// Registers those whose arguments are known. Once: what is registered already stays.
void install_kernels(const PositionsByName& known);
void uninstall_kernels();
// From now on the calling thread's collectives raise an exception in place of what they do, or no longer. Gives how many
// did since that was switched on.
uint64_t refuse_collectives(bool on);

}  // namespace prismdbg
