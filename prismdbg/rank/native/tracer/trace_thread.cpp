#include "tracer/trace_thread.h"

#include <pthread.h>

namespace prismdbg {
namespace {

// Names that torch gives to the threads of its process groups.
constexpr std::string_view kBackendNames[] = {"pt_gloo", "gloo", "pt_nccl", "pt_ucc", "pt_mpi"};

}  // namespace

bool ThreadTrace::is_backend() {
  if (backend_ < 0) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    backend_ = 0;
    for (const std::string_view known : kBackendNames) {
      backend_ |= std::string_view(name).starts_with(known) ? 1 : 0;
    }
  }
  return backend_ == 1;
}

ThreadTrace& this_thread() {
  static thread_local ThreadTrace trace;
  return trace;
}

}  // namespace prismdbg
