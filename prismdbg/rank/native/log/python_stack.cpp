#define Py_BUILD_CORE 1
#include "log/python_stack.h"

#include <algorithm>

#include "process/gil.h"

// Frames are laid out anew in every Python; where the layout is not known, walking takes the lock.
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000 && !defined(PRISMDBG_WALK_WITH_GIL)
#include <internal/pycore_frame.h>
#define PRISMDBG_WALKS_WITHOUT_GIL 1
#endif

namespace prismdbg {
namespace {

constexpr size_t kDeepest = 48;           // frames kept of a stack
constexpr size_t kMostStacks = 1 << 16;   // a program that makes more (generated code) gets stack 0
constexpr std::string_view kOwnFiles = "/prismdbg/rank/";

std::string text_of(PyObject* unicode) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(unicode, &size);
  if (text == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return {text, static_cast<size_t>(size)};
}

#ifdef PRISMDBG_WALKS_WITHOUT_GIL
#if PY_VERSION_HEX < 0x030D0000

const _PyInterpreterFrame* innermost(const PyThreadState* thread) {
  return thread->cframe == nullptr ? nullptr : thread->cframe->current_frame;
}
PyCodeObject* code_of(const _PyInterpreterFrame* frame) { return frame->f_code; }
const _Py_CODEUNIT* instruction_of(const _PyInterpreterFrame* frame) { return frame->prev_instr; }

#else

const _PyInterpreterFrame* innermost(const PyThreadState* thread) { return thread->current_frame; }
PyCodeObject* code_of(const _PyInterpreterFrame* frame) { return reinterpret_cast<PyCodeObject*>(frame->f_executable); }
const _Py_CODEUNIT* instruction_of(const _PyInterpreterFrame* frame) { return frame->instr_ptr; }

#endif

// Where C called Python; since 3.12 it has a frame of its own.
bool is_of_c([[maybe_unused]] const _PyInterpreterFrame* frame) {
#if PY_VERSION_HEX < 0x030C0000
  return false;
#else
  return frame->owner == FRAME_OWNED_BY_CSTACK;
#endif
}
#endif

}  // namespace

size_t PythonStacks::PlacesHash::operator()(const std::vector<Place>& places) const {
  uint64_t hash = 0;
  for (const Place& place : places) {
    const auto code = reinterpret_cast<uintptr_t>(place.code);
    hash = (hash ^ code ^ (static_cast<uint64_t>(place.instruction) << 40)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29;
  }
  return hash;
}

#ifdef PRISMDBG_WALKS_WITHOUT_GIL

bool PythonStacks::needs_lock() {
  return false;
}

// A thread's own frames stand still while it is here, and they keep their code objects alive, so reading them needs
// no lock. faulthandler walks the same way.
void PythonStacks::walk(std::vector<Place>& places, FirstArgument* argument) {
  const PyThreadState* thread = PyGILState_GetThisThreadState();
  const _PyInterpreterFrame* frame = thread == nullptr ? nullptr : innermost(thread);
  for (; frame != nullptr && places.size() < kDeepest; frame = frame->previous) {
    if (is_of_c(frame)) {
      continue;
    }
    PyCodeObject* code = code_of(frame);
    const auto instruction = instruction_of(frame) - _PyCode_CODE(code);
    if (frame->owner == FRAME_OWNED_BY_GENERATOR || instruction >= code->_co_firsttraceable) {
      places.push_back({code, static_cast<int64_t>(instruction * sizeof(_Py_CODEUNIT))});
    }
    if (argument != nullptr && argument->value == nullptr && code == argument->code) {
      argument->value = frame->localsplus[0];
    }
  }
}

#else

bool PythonStacks::needs_lock() {
  return true;
}

void PythonStacks::walk(std::vector<Place>& places, FirstArgument*) {
  if (PyGILState_GetThisThreadState() == nullptr) {
    return;
  }
  const WithGil held;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyFrameObject* back = nullptr;
    if (places.size() < kDeepest) {
      PyCodeObject* code = PyFrame_GetCode(frame);
      places.push_back({code, PyFrame_GetLasti(frame)});
      Py_DECREF(code);  // the running frame keeps it
      back = PyFrame_GetBack(frame);
    }
    Py_DECREF(frame);
    frame = back;
  }
}

#endif

uint32_t PythonStacks::current(const Writer& write, FirstArgument* argument) {
  if (python_is_ending()) {
    return 0;
  }
  thread_local std::vector<Place> places;
  places.clear();
  walk(places, argument);
  if (places.empty()) {
    return 0;
  }
  thread_local Latest latest;
  const uint64_t generation = generation_.load(std::memory_order_acquire);
  if (latest.generation == generation && latest.places == places) {
    return latest.number;
  }
  const uint32_t number = number_of(places, write);
  latest = {places, generation, number};
  return number;
}

uint32_t PythonStacks::number_of(const std::vector<Place>& places, const Writer& write) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = numbers_.find(places);
    if (known != numbers_.end()) {
      return known->second;
    }
    if (numbers_.size() >= kMostStacks) {
      return 0;
    }
  }
  return add(places, write);
}

uint32_t PythonStacks::add(const std::vector<Place>& places, const Writer& write) {
  const uint32_t number = write(resolve(places));
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.try_emplace(places, number);
  return number;
}

// Takes a reference to every code object: as a key its address must not be used again.
std::vector<NamedFrame> PythonStacks::resolve(const std::vector<Place>& places) {
  std::vector<NamedFrame> frames;
  const WithGil held;
  for (const Place& place : places) {
    auto* code = static_cast<PyCodeObject*>(const_cast<void*>(place.code));
    Py_INCREF(code);
    NamedFrame frame{text_of(code->co_filename), 0, text_of(code->co_name)};
    frame.line = static_cast<uint32_t>(std::max(PyCode_Addr2Line(code, static_cast<int>(place.instruction)), 0));
    if (frame.file.find(kOwnFiles) == std::string::npos) {
      frames.push_back(std::move(frame));
    }
  }
  return frames;
}

void PythonStacks::forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.clear();
  generation_.store(new_generation(), std::memory_order_release);
}

uint64_t PythonStacks::new_generation() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace prismdbg
