// What one process records with. A forked child starts with a fresh one: it never touches its parent's log.
#pragma once

#include "device/watch.h"
#include "process/gate.h"
#include "recorder/recorder.h"

namespace prismdbg {

struct State {
  Gate gate;
  Recorder recorder;
  DeviceWatch devices;
};

State& state();

}  // namespace prismdbg
