// Boxed kernels for the operators of op_table.h at dispatch key BackendSelect.
#pragma once

#include <map>
#include <string>

namespace prismdbg {

using Positions = std::map<std::string, int>;  // of an operator's arguments, by what they are to us
using PositionsByName = std::map<std::string, Positions>;

// Registers those whose arguments are known. Once: what is registered already stays.
void install_kernels(const PositionsByName& known);
void uninstall_kernels();

}  // namespace prismdbg
