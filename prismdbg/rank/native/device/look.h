// What a collective sends or receives, looked at on its device: begun behind what a stream has to do, read when it is
// done. No thread waits for it.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/pinned_memory.h"
#include "recorder/fingerprint.h"

namespace prismdbg {

// Contiguous tensors of one device, and the stream behind which they are as the program means them.
struct DeviceTensors {
  int device = 0;
  CuHandle stream = nullptr;
  std::vector<Span> spans;
};

struct Wanted {
  bool fingerprint = false;
  bool nonfinite = false;
  bool copies = false;
  bool waits_for_room = true;  // a bounded time, for what is copied
};

class Look {
 public:
  // Throws std::runtime_error where the device refuses, std::bad_alloc where there is no room for it.
  Look(Device& device, PinnedMemory& memory, const DeviceTensors& tensors, const Wanted& wanted);
  // Only when it is done, or its device has failed.
  ~Look();
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

  // Which stream it is in the queue of.
  std::pair<const Device*, CuHandle> queue() const { return {&device_, stream_}; }
  // What this stream has to do from here on comes behind it.
  void hold_back(CuHandle stream) const;
  // Throws where the device has failed.
  bool is_done() const;
  // Of what is done:
  Fingerprint found() const;
  const std::vector<Span>& copies() const { return copies_; }

 private:
  struct Scan {
    size_t size_bytes;
    std::optional<uint32_t> place;  // where there is something to look at
  };

  // Throws std::bad_alloc; nothing is begun then.
  void take_room(const DeviceTensors& tensors, const Wanted& wanted);
  void begin_scans(const DeviceTensors& tensors, const Wanted& wanted);
  void begin_copies(const DeviceTensors& tensors);
  void give_back();

  Device& device_;
  PinnedMemory& memory_;
  CuHandle stream_;
  CuHandle event_ = nullptr;
  std::vector<uint32_t> places_;
  std::vector<Scan> scans_;
  std::vector<PinnedBuffer> buffers_;
  std::vector<Span> copies_;
};

}  // namespace prismdbg
