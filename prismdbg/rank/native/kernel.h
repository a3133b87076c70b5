// Boxed kernels for the operators of op_table.h at dispatch key BackendSelect.
#pragma once

namespace prismdbg {

// Registers them. Throws std::runtime_error where torch's schemas are not the ones of op_table.h.
void install_kernels();
void uninstall_kernels();

}  // namespace prismdbg
