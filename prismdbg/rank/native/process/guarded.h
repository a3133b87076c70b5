// Fail open: what goes wrong in the recorder never reaches the training program.
#pragma once

#include <exception>

namespace prismdbg {

// Runs `action`; `fail` gets the text of what it throws. True where nothing was thrown.
template <typename Action, typename Fail>
bool guarded(Action&& action, Fail&& fail) noexcept {
  try {
    action();
    return true;
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("unknown error");
  }
  return false;
}

}  // namespace prismdbg
