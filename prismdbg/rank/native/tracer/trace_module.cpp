#include "tracer/trace_module.h"

#include <pybind11/stl.h>

#include "process/gil.h"
#include "tracer/allocator_shim.h"
#ifdef PRISMDBG_CUDA
#include "tracer/cuda_allocations.h"
#endif
#include "tracer/trace_operators.h"
#include "tracer/tracer.h"

namespace prismdbg {
namespace {

using WithoutLock = py::call_guard<py::gil_scoped_release>;

py::tuple as_tuple(const Moment& moment) {
  return py::make_tuple(moment.step, moment.collective, moment.op);
}

py::list as_list(const std::vector<NamedFrame>& frames) {
  py::list out;
  for (const NamedFrame& frame : frames) {
    out.append(py::make_tuple(frame.file, frame.line, frame.function));
  }
  return out;
}

// A Python function that may outlive Python: never let go, called only with the lock.
std::shared_ptr<py::object> kept(const py::object& function) {
  return {new py::object(function), [](py::object* held) {
            if (!python_is_ending()) {
              const WithGil lock;
              delete held;
            }
          }};
}

// An event may be a free in the midst of an exception's own unwinding: what was raised stays raised.
class KeepRaised {
 public:
  KeepRaised() { PyErr_Fetch(&type_, &value_, &trace_); }
  ~KeepRaised() { PyErr_Restore(type_, value_, trace_); }
  KeepRaised(const KeepRaised&) = delete;
  KeepRaised& operator=(const KeepRaised&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* trace_ = nullptr;
};

void call_back(const py::object& callback, const TraceEvent& event, const std::string& module,
               const std::vector<int>& matched) {
  const WithGil lock;
  const KeepRaised raised;
  try {
    callback(static_cast<int>(event.kind), as_tuple(event.moment), py::str(event.op.data(), event.op.size()),
             py::str(event.outer_op.data(), event.outer_op.size()), module, event.address, event.size_bytes,
             event.total_bytes, event.block, event.is_backend, event.device, matched);
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("prismdbg: an event of the trace");
  }
}

void on_event(const py::object& callback, const std::vector<py::tuple>& filters) {
  std::vector<TraceFilter> made;
  for (const py::tuple& from : filters) {
    TraceFilter filter;
    filter.every = from[0].cast<bool>();
    if (!from[1].is_none()) {
      const auto [step, collective, op] = from[1].cast<std::tuple<uint32_t, uint32_t, uint32_t>>();
      filter.has_moment = true;
      filter.at = {step, collective, op};
    }
    filter.size_at_least_bytes = from[2].cast<uint64_t>();
    filter.total_above_bytes = from[3].cast<uint64_t>();
    filter.op = from[4].cast<std::string>();
    made.push_back(std::move(filter));
  }
  Tracer::Callback call;
  if (!callback.is_none()) {
    call = [function = kept(callback)](const TraceEvent& event, const std::string& module,
                                       const std::vector<int>& matched) {
      call_back(*function, event, module, matched);
    };
  }
  const py::gil_scoped_release released;
  tracer().set_filters(std::move(made), std::move(call));
}

void name_modules(const py::object& callback) {
  auto namer = [function = kept(callback)](const void* module) -> std::string {
    const WithGil lock;
    const KeepRaised raised;
    try {
      return (*function)(py::reinterpret_borrow<py::object>(static_cast<PyObject*>(const_cast<void*>(module))))
          .cast<std::string>();
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("prismdbg: naming a module");
    }
    return "";
  };
  const py::gil_scoped_release released;
  tracer().set_module_namer(std::move(namer));
}

py::object find_block(uint64_t address) {
  std::optional<FoundBlock> found;
  {
    const py::gil_scoped_release released;
    found = tracer().find(address);
  }
  if (!found) {
    return py::none();
  }
  py::dict out;
  out["block"] = found->block.number;
  out["address"] = found->address;
  out["size_bytes"] = found->block.size_bytes;
  out["moment"] = as_tuple(found->block.moment);
  out["op"] = found->op;
  out["outer_op"] = found->outer_op;
  out["module"] = found->module;
  out["frames"] = as_list(found->frames);
  out["is_backend"] = found->block.is_backend;
  out["is_before"] = found->block.is_before;
  out["device"] = found->block.device;
  return out;
}

py::dict as_dict(const DeviceTotals& totals) {
  py::dict out;
  out["allocated"] = totals.allocated;
  out["backend"] = totals.backend;
  out["peak"] = totals.peak;
  out["reserved"] = totals.reserved;
  return out;
}

py::dict trace_stats() {
  TraceStats now;
  {
    const py::gil_scoped_release released;
    now = tracer().stats();
  }
  py::dict out;
  out["on"] = now.is_armed;
  out["closed"] = now.is_closed;
  out["blocks"] = now.blocks;
  out["records"] = now.records;
  py::dict devices;
  for (size_t device = 0; device < now.devices.size(); ++device) {
    devices[py::int_(device)] = as_dict(now.devices[device]);
  }
  const DeviceTotals& largest = now.devices[now.device];
  out["allocated"] = largest.allocated;
  out["backend"] = largest.backend;
  out["peak"] = largest.peak;
  out["device"] = now.device;
  out["devices"] = devices;
  out["refused"] = now.refused;
  out["last_op"] = now.last_op;
  out["lost"] = now.lost;
  out["moment"] = as_tuple(place().moment());
  return out;
}

void arm(const std::string& folder, bool is_direct, const py::object& module_code) {
  const void* code = module_code.ptr();
  const py::gil_scoped_release released;
  install_allocator();
  tracer().arm(folder, is_direct, code);
  watch_operators();
}

void disarm() {
  unwatch_operators();
  tracer().disarm();
}

}  // namespace

void bind_tracer(py::module_& m) {
  m.def("trace_arm", &arm, py::arg("folder"), py::arg("is_direct"), py::arg("module_code"));
  m.def("trace_disarm", &disarm, WithoutLock());
  m.def("trace_adopt", &adopt_storages, "Makes storages that were there before known; how many were new.",
        WithoutLock());
  m.def(
      "trace_device",
      [](uint8_t action, uint16_t device, uint64_t address, uint64_t size_bytes) {
        tracer().device_event(static_cast<DeviceAction>(action), device, address, size_bytes);
      },
      py::arg("action"), py::arg("device"), py::arg("address"), py::arg("size_bytes"),
      "What a device's allocator would tell, for tests: 0 allocated, 1 freed, 2 reserved, 3 released, 4 refused.");
#ifdef PRISMDBG_CUDA
  m.def("trace_follow_cuda", &follow_cuda, WithoutLock(), "Whether CUDA is initialized, and is followed from now on.");
#endif
  m.def("trace_close", [] { tracer().close_files(); }, WithoutLock());
  m.def("trace_reopen", [] { tracer().reopen_files(); }, WithoutLock());
  m.def("trace_stats", &trace_stats);
  m.def("trace_find", &find_block);
  m.def("trace_on_event", &on_event, py::arg("callback"), py::arg("filters"));
  m.def("trace_name_modules", &name_modules);
  m.def("trace_forget_module", [](uint64_t module) {
    const py::gil_scoped_release released;
    tracer().forget_module(reinterpret_cast<const void*>(module));
  });
  m.def("trace_move", [](uint32_t step, uint32_t collective) {
    place().move(step, collective);
    tracer().issued();
  });
  m.def("trace_answered", [] { tracer().answered(); }, WithoutLock());
  m.def("trace_waited", [](uint64_t record_id, int64_t began_ns) { tracer().waited(record_id, began_ns); },
        WithoutLock());
  m.def("trace_cap", [](uint64_t cap_bytes, std::string hint) { tracer().set_cap(cap_bytes, std::move(hint)); },
        WithoutLock(), "Above it the program's allocations raise torch.OutOfMemoryError; 0: none.");
  m.def("trace_thread", [](uint32_t thread) { place().set_thread(thread); });
  m.def("trace_quiet", [](bool on) { this_thread().quiet = on; });
}

}  // namespace prismdbg
