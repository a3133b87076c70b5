// The program's standard error. Where it began without one, or has closed it, its number may be that of any file of the
// program's.
#pragma once

#include <string>

namespace prismdbg {

// What is standard error now is the file that `say_on_stderr` writes to; without this call, none is.
void remember_stderr();
// Nothing where another file has its number.
void say_on_stderr(const std::string& line);

}  // namespace prismdbg
