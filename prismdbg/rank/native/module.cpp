// The Python module prismdbg_native: what prismdbg/rank/recording/recorder.py asks of a recorder, and a few parts for tests.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <system_error>
#include <thread>

#include "c10d/coalescing.h"
#include "c10d/hooks.h"
#include "c10d/kernel.h"
#include "c10d/tensors.h"
#include "log/bytes_of.h"
#include "process/stderr.h"
#include "recorder/sketch.h"
#include "recorder/state.h"
#include "tracer/trace_module.h"

namespace prismdbg {
namespace {

using WithoutLock = py::call_guard<py::gil_scoped_release>;

py::dict stats() {
  Recorder& recorder = state().recorder;
  const Position position = recorder.position();
  py::dict out;
  out["events"] = position.record_id;
  out["event_bytes"] = recorder.event_bytes();
  out["payload_bytes"] = recorder.payload_bytes();
  out["payload_oldest_step"] = recorder.payload_oldest_step();
  out["lost"] = recorder.lost();
  out["step"] = position.step;
  out["collective"] = position.collective;
  out["mode"] = recorder.mode();
  out["entering"] = state().gate.entering();
  return out;
}

py::tuple moment() {
  const uint64_t packed = state().recorder.packed_moment();
  return py::make_tuple(packed >> 32, packed & UINT32_MAX);
}

py::list sequences() {
  py::list out;
  for (const Sequence& sequence : state().recorder.sequences()) {
    out.append(py::make_tuple(sequence.group, sequence.op, sequence.peer, sequence.tag, sequence.next));
  }
  return out;
}

// What devices have still to say is written first, if they say it in time.
void close_log() {
  state().devices.drain();
  state().recorder.close_log();
}

void tidy() {
  state().devices.drain();
  state().devices.stop();
  state().recorder.tidy();
}

void handover(const py::object& callback) {
  set_rescuer(callback);
  state().recorder.set_mode(0);
  uninstall_kernels();
  set_handed_over(true);
}

py::tuple fingerprint(const std::vector<at::Tensor>& tensors) {
  HostBytes bytes;
  for (const at::Tensor& tensor : tensors) {
    bytes.add(tensor);
  }
  Fingerprint scan(/*hash=*/true, /*look_for_nonfinite=*/true);
  for (const Span& span : bytes.spans()) {
    scan.add(span);
  }
  return py::make_tuple(scan.value(), scan.nonfinite());
}

// As `fingerprint`, worked out by the device that holds them; None where it cannot.
py::object scan(const std::vector<at::Tensor>& tensors) {
  const OnDevice there = on_device(references(tensors));
  const auto look = there.tensors ? state().devices.look(*there.tensors, {.fingerprint = true, .nonfinite = true}) : nullptr;
  if (!look) {
    return py::none();
  }
  while (!look->is_done()) {
    std::this_thread::yield();
  }
  return py::make_tuple(look->found().value(), look->found().nonfinite());
}

py::bytes sketch_of(const std::vector<at::Tensor>& tensors) {
  HostBytes bytes;
  for (const at::Tensor& tensor : tensors) {
    bytes.add(tensor);
  }
  if (!can_be_sketched(bytes.spans())) {
    return py::bytes();
  }
  return py::bytes(std::string(bytes_of(sketch(bytes.spans()))));
}

void bind_steering(py::module_& m) {
  m.def("install", &install_kernels);
  m.def("uninstall", &uninstall_kernels);
  m.def("mode", [](int mode) { state().recorder.set_mode(mode); });
  m.def(
      "open",
      [](std::string folder, int32_t rank, size_t event_segment_bytes, size_t payload_segment_bytes, bool stacks,
         bool fingerprints, bool nan_check, bool sketches, bool direct) {
        state().recorder.open({std::move(folder), rank, event_segment_bytes, payload_segment_bytes, stacks,
                               fingerprints, nan_check, sketches, direct});
      },
      py::arg("folder"), py::arg("rank"), py::arg("event_segment_bytes"), py::arg("payload_segment_bytes"),
      py::arg("stacks"), py::arg("fingerprints"), py::arg("nan_check"), py::arg("sketches"), py::arg("direct"),
      WithoutLock());
  m.def(
      "append",
      [](uint16_t kind, const py::bytes& body) {
        const std::string_view bytes = body;
        const py::gil_scoped_release released;
        state().recorder.append(static_cast<Kind>(kind), bytes);
      },
      py::arg("kind"), py::arg("body"));
  m.def(
      "append_held",
      [](uint16_t kind, const py::bytes& body) {
        const std::string_view bytes = body;
        if (!state().recorder.try_append(static_cast<Kind>(kind), bytes)) {
          const py::gil_scoped_release released;
          state().recorder.append(static_cast<Kind>(kind), bytes);
        }
      },
      py::arg("kind"), py::arg("body"), "as `append`; gives up Python's lock only where another thread writes to the log, or a segment is full");
  m.def("text", [](const std::string& text) { return state().recorder.text(text); }, WithoutLock());
  m.def(
      "begin_step", [](uint32_t step, uint8_t source) { state().recorder.begin_step(step, source); }, py::arg("step"),
      py::arg("source"), WithoutLock());
  m.def("backward", [](bool on) { state().recorder.set_backward(on); });  // with Python's lock: its stack is read
}

void bind_window_and_park(py::module_& m) {
  m.def(
      "window", [](bool on, int64_t steps, uint64_t size_bytes) { state().recorder.window(on, steps, size_bytes); },
      py::arg("on"), py::arg("steps"), py::arg("size_bytes"), WithoutLock());
  m.def("keep_from", [](int64_t step) { state().recorder.keep_from(step); }, WithoutLock());
  m.def(
      "keep_small",
      [](uint64_t each_bytes, uint64_t total_bytes) {
        const NotKept not_kept = state().recorder.keep_small(each_bytes, total_bytes);
        return std::make_pair(not_kept.bytes, not_kept.small_bytes);
      },
      py::arg("each_bytes"), py::arg("total_bytes"), WithoutLock(),
      "(bytes that are not kept, bytes of small payloads for which there was no more room) since the last call");
  m.def("park", [](bool on) { state().gate.set_closed(on); }, WithoutLock());
  m.def("parked", [] { return state().gate.waiting(); });
  m.def("refuse", &refuse_collectives);
  m.def("in_flight", [] { return state().recorder.in_flight(); }, WithoutLock());
  m.def("close_log", &close_log, WithoutLock());
  m.def("tidy", &tidy, WithoutLock());
  m.def("reopen_log", [] { state().recorder.reopen_log(); }, WithoutLock());
  m.def("stats", &stats);
  m.def("moment", &moment, "(step, collective)");
  m.def("sequences", &sequences, "(group, op, peer, tag, next sequence) of all; op is empty for collectives");
  m.def("fingerprint", &fingerprint, "(fingerprint, whether a value is not finite) of a list of tensors");
  m.def("scan", &scan, "as `fingerprint`, by the device that holds the tensors; None where it cannot");
  m.def("sketch", &sketch_of, "as the log has it, of a list of tensors; empty where there is none");
  m.def("on_group", &set_group_hook);
  m.def("new_world", &begin_world, "the suffix that names of groups have from here on; all are described again");
  m.def("start_coalescing", &start_coalescing);
  m.def("end_coalescing", &end_coalescing);
  m.def("handover", &handover);
}

}  // namespace

void translate(const std::system_error& error) {
  PyErr_SetObject(PyExc_OSError, py::make_tuple(error.code().value(), error.what()).ptr());
}

}  // namespace prismdbg

PYBIND11_MODULE(prismdbg_native, m) {
  m.doc() = "prismdbg's recording kernels for torch.distributed.";
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) {
        std::rethrow_exception(pointer);
      }
    } catch (const std::system_error& error) {
      prismdbg::translate(error);
    }
  });
  if (!py::module_::import("sys").attr("__stderr__").is_none()) {  // None: the program began without one
    prismdbg::remember_stderr();
  }
  prismdbg::bind_steering(m);
  prismdbg::bind_window_and_park(m);
  prismdbg::bind_tracer(m);
  py::module_::import("atexit").attr("register")(
      py::cpp_function(&prismdbg::tidy, prismdbg::WithoutLock()));
}
