// A library that stands in for NVIDIA's driver where a process is saved: the functions of process checkpointing, by their
// numbers in cuda.h. It has no device. The state of a process is a variable in the process's own memory, so that it is
// saved and restored with the process, as what NVIDIA's driver leaves there is.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3 };
enum { RUNNING = 0, LOCKED = 1, CHECKPOINTED = 2 };

volatile int fake_state = RUNNING;  // less: the process has none
volatile int fake_refuses = SUCCESS;  // what Checkpoint answers
volatile int fake_keeps = SUCCESS;    // what Unlock answers

// What every call of CUDA does while the process has no GPU: it waits.
void fake_launch(void) {
  while (fake_state != RUNNING) usleep(1000);
}

// The same variable in another process that has loaded this library: a library lies in memory as one piece.
static void* there(int pid, volatile int* here) {
  Dl_info own;
  if (!dladdr((void*)here, &own)) return NULL;
  char name[64], line[4096];
  snprintf(name, sizeof name, "/proc/%d/maps", pid);
  FILE* maps = fopen(name, "r");
  if (!maps) return NULL;
  char* found = NULL;
  while (!found && fgets(line, sizeof line, maps)) {
    unsigned long start, offset;
    if (sscanf(line, "%lx-%*x %*s %lx", &start, &offset) == 2 && offset == 0 && strstr(line, "/libcuda.so.1\n"))
      found = (char*)start + ((char*)here - (char*)own.dli_fbase);
  }
  fclose(maps);
  return found;
}

static int moved(int pid, volatile int* what, int* value, int is_write) {
  void* address = there(pid, what);
  struct iovec local = {value, sizeof *value}, remote = {address, sizeof *value};
  if (!address) return 0;
  long done = is_write ? process_vm_writev(pid, &local, 1, &remote, 1, 0) : process_vm_readv(pid, &local, 1, &remote, 1, 0);
  return done == sizeof *value;
}

static int changed(int pid, int from, int to) {
  int state = -1;
  if (!moved(pid, &fake_state, &state, 0)) return NOT_INITIALIZED;
  if (state != from) return INVALID_VALUE;
  return moved(pid, &fake_state, &to, 1) ? SUCCESS : NOT_INITIALIZED;
}

int cuCheckpointProcessGetState(int pid, int* state) {
  return moved(pid, &fake_state, state, 0) && *state >= RUNNING ? SUCCESS : NOT_INITIALIZED;
}

int cuCheckpointProcessLock(int pid, void* args) {
  (void)args;
  return changed(pid, RUNNING, LOCKED);
}

int cuCheckpointProcessCheckpoint(int pid, void* args) {
  (void)args;
  int refuses = SUCCESS;
  if (!moved(pid, &fake_refuses, &refuses, 0)) return NOT_INITIALIZED;
  return refuses ? refuses : changed(pid, LOCKED, CHECKPOINTED);
}

int cuCheckpointProcessRestore(int pid, void* args) {
  (void)args;
  return changed(pid, CHECKPOINTED, LOCKED);
}

int cuCheckpointProcessUnlock(int pid, void* args) {
  (void)args;
  int keeps = SUCCESS;
  if (!moved(pid, &fake_keeps, &keeps, 0)) return NOT_INITIALIZED;
  return keeps ? keeps : changed(pid, LOCKED, RUNNING);
}

int cuGetErrorName(int code, const char** name) {
  static char text[64];
  snprintf(text, sizeof text, "FAKE_ERROR_%d", code);
  *name = text;
  return SUCCESS;
}
