#include "recorder/failure.h"

#include <c10/util/Exception.h>

#include <stdexcept>

namespace prismdbg {

namespace {

// The names under which torch and pybind hand them to Python.
void describe(const std::exception_ptr& error, Failure& failure) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::DistBackendError& known) {
    failure.type = "DistBackendError";
    failure.text = known.what_without_backtrace();
  } catch (const c10::DistNetworkError& known) {
    failure.type = "DistNetworkError";
    failure.text = known.what_without_backtrace();
  } catch (const c10::DistStoreError& known) {
    failure.type = "DistStoreError";
    failure.text = known.what_without_backtrace();
  } catch (const c10::DistError& known) {
    failure.type = "DistError";
    failure.text = known.what_without_backtrace();
  } catch (const c10::ValueError& known) {
    failure.type = "ValueError";
    failure.text = known.what_without_backtrace();
  } catch (const c10::TypeError& known) {
    failure.type = "TypeError";
    failure.text = known.what_without_backtrace();
  } catch (const c10::NotImplementedError& known) {
    failure.type = "NotImplementedError";
    failure.text = known.what_without_backtrace();
  } catch (const c10::Error& known) {
    failure.text = known.what_without_backtrace();
  } catch (const std::invalid_argument& known) {
    failure.type = "ValueError";
    failure.text = known.what();
  } catch (const std::exception& known) {
    failure.text = known.what();
  }
}

}  // namespace

Failure failure_of(const std::exception_ptr& error, bool at_issue) noexcept {
  Failure failure;
  failure.at_issue = at_issue;
  try {
    failure.type = "RuntimeError";
    if (error) {
      describe(error, failure);
    }
  } catch (...) {  // of no type that is known, or without memory: that it failed is said all the same
  }
  return failure;
}

}  // namespace prismdbg
