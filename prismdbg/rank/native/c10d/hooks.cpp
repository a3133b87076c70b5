#include "c10d/hooks.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "process/gil.h"
#include "recorder/json.h"
#include "recorder/state.h"

namespace prismdbg {
namespace {

// Never destroyed: Python may be gone when statics are.
py::object& group_hook() {
  static auto* hook = new py::object();
  return *hook;
}

py::object& rescuer() {
  static auto* callback = new py::object();
  return *callback;
}

std::atomic<bool> handed_over{false};

struct KnownGroups {
  std::recursive_mutex mutex;  // the hook may itself issue a collective
  std::unordered_set<std::string> names;
};

KnownGroups& known_groups() {
  static auto* groups = new KnownGroups();
  return *groups;
}

// Strings that are never freed: threads may read one while another takes its place.
std::atomic<const std::string*>& world_suffix() {
  static std::atomic<const std::string*> suffix{new std::string()};
  return suffix;
}

// Where Python describes no group: global ranks are known for the default group only.
std::string described_here(const c10d::ProcessGroup& group) {
  std::string ranks;
  if (group.getGroupDesc() == "default_pg") {
    for (int rank = 0; rank < group.getSize(); ++rank) {
      ranks += (rank ? ", " : "") + std::to_string(rank);
    }
  }
  std::string kept;
  return "{\"name\": " + json_string(name_of(group, kept)) + ", \"ranks\": [" + ranks +
         "], \"desc\": " + json_string(group.getGroupDesc()) +
         ", \"backend\": " + json_string(group.getBackendName()) + "}";
}

bool is_main_thread() {
  const auto threading = py::module_::import("threading");
  return threading.attr("main_thread")().attr("ident").cast<unsigned long>() == PyThread_get_thread_ident();
}

int raise_again(void* kept) {
  const std::unique_ptr<py::error_already_set> error(static_cast<py::error_already_set*>(kept));
  error->restore();
  return -1;
}

// What the hook raises is the program's: a signal's handler or another thread raised it meanwhile. The program gets it
// at its next line, for here nothing may fail.
void pass_on(std::unique_ptr<py::error_already_set> error) {
  if (!is_main_thread()) {
    if (PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), error->type().ptr()) == 1) {
      return;
    }
  } else if (Py_AddPendingCall(&raise_again, error.get()) == 0) {
    [[maybe_unused]] auto* kept = error.release();
    return;
  }
  error->discard_as_unraisable("prismdbg: describing a process group");
}

bool described_by_python(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (python_is_ending()) {
    return false;
  }
  const WithGil held;
  if (!group_hook()) {
    return false;
  }
  std::unique_ptr<py::error_already_set> raised;
  bool is_described = false;
  for (int attempt = 0; attempt < 2 && !is_described; ++attempt) {
    try {
      group_hook()(group);
      is_described = true;
    } catch (py::error_already_set& error) {
      raised = std::make_unique<py::error_already_set>(error);
    }
  }
  if (raised) {  // at last: Python would raise it in the hook again
    pass_on(std::move(raised));
  }
  return is_described;
}

}  // namespace

void introduce_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group) noexcept {
  try {
    auto& known = known_groups();
    const WithoutGil released;
    const std::lock_guard<std::recursive_mutex> lock(known.mutex);
    std::string kept;
    if (known.names.insert(name_of(*group, kept)).second && !described_by_python(group)) {
      state().recorder.append(Kind::group, described_here(*group));
    }
  } catch (const std::exception& error) {
    state().recorder.lose("events", error.what());
  }
}

const std::string& name_of(const c10d::ProcessGroup& group, std::string& kept) {
  const std::string& suffix = *world_suffix().load(std::memory_order_acquire);
  return suffix.empty() ? group.getGroupName() : kept = group.getGroupName() + suffix;
}

void begin_world(const std::string& suffix) {
  world_suffix().store(new std::string(suffix), std::memory_order_release);
}

void set_group_hook(const py::object& callback) {
  group_hook() = callback;
}

bool is_handed_over() {
  return handed_over.load(std::memory_order_acquire);
}

void set_handed_over(bool value) {
  handed_over.store(value, std::memory_order_release);
}

bool rescue(uint64_t record_id, const char* op, const std::vector<at::Tensor>& outputs, int& source) noexcept {
  if (python_is_ending()) {
    return false;
  }
  const WithGil held;
  if (!rescuer()) {
    return false;
  }
  try {
    const py::object answer = rescuer()(record_id, op, outputs);
    if (!py::isinstance<py::bool_>(answer) && py::isinstance<py::int_>(answer)) {
      source = answer.cast<int>();
      return true;
    }
    return answer.cast<bool>();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("prismdbg: filling the outputs of a collective");
  } catch (const std::exception&) {
  }
  return false;
}

void set_rescuer(const py::object& callback) {
  rescuer() = callback;
}

}  // namespace prismdbg
