#include "tracer/trace_operators.h"

#include <ATen/record_function.h>

#include <memory>

#include "tracer/tracer.h"

namespace prismdbg {
namespace {

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const bool is_backward = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
  tracer().op_begins(function.name(), function.seqNr(), is_backward);
  return nullptr;
}

void end(const at::RecordFunction&, at::ObserverContext*) {
  tracer().op_ends();
}

}  // namespace

void watch_operators() {
  if (handle == at::INVALID_CALLBACK_HANDLE) {
    handle = at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end)
                                       .needsInputs(false)
                                       .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
}

void unwatch_operators() {
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
}

}  // namespace prismdbg
