// Why a collective failed, as Python says it to the program. A replay raises the same again.
#pragma once

#include <exception>
#include <string>

namespace prismdbg {

struct Failure {
  std::string type;
  std::string text;
  bool at_issue = false;  // raised by the call itself, not by the work it gave
};

Failure failure_of(const std::exception_ptr& error, bool at_issue = false) noexcept;

}  // namespace prismdbg
