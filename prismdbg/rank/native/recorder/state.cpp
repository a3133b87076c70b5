#include "recorder/state.h"

#include <pthread.h>

#include <atomic>

namespace prismdbg {
namespace {

// Never destroyed: threads of the backend may complete works while the process ends. The parent's State stays
// behind in the child, for its locks may be held by threads that are not there.
std::atomic<State*>& current() {
  static std::atomic<State*> pointer = [] {
    pthread_atfork(nullptr, nullptr, [] { current().store(new State()); });
    return new State();
  }();
  return pointer;
}

}  // namespace

State& state() {
  return *current().load(std::memory_order_acquire);
}

}  // namespace prismdbg
