// Taking and releasing Python's global lock around a scope, where this thread may or may not hold it.
#pragma once

#include <Python.h>

namespace prismdbg {

inline bool python_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

// PyGILState_Check() says yes to any thread once there was a second interpreter in the process.
inline bool holds_gil() {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_GetUnchecked() != nullptr;
#elif PY_VERSION_HEX >= 0x030C0000
  return _PyThreadState_UncheckedGet() != nullptr;
#else  // before 3.12 that is the state of whichever thread runs
  const PyThreadState* mine = PyGILState_GetThisThreadState();
  return mine != nullptr && mine == _PyThreadState_UncheckedGet();
#endif
}

// Releases the lock if this thread holds it: nobody may wait for another thread with it in hand.
class WithoutGil {
 public:
  WithoutGil() : state_(!python_is_ending() && holds_gil() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Holds the lock; only while `python_is_ending()` is false.
class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace prismdbg
