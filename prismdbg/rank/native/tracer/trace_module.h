// The tracer's part of the Python module: what prismdbg/rank/tracing/tracer.py asks of it.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace prismdbg {

void bind_tracer(py::module_& m);

}  // namespace prismdbg
