// Which module was running when an autograd node was made: backward runs without a module's frames, but every node
// carries the sequence number that its forward operator had. Remembers the most recent ones. Thread safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace prismdbg {

class AutogradModules {
 public:
  void made(int64_t sequence, uint32_t module) {
    slot(sequence).store(key(sequence) | (module & kModuleMask), std::memory_order_relaxed);
  }
  // 0 where it is not known, or no longer.
  uint32_t of(int64_t sequence) const {
    const uint64_t found = slots_[index(sequence)].load(std::memory_order_relaxed);
    return (found & ~kModuleMask) == key(sequence) ? static_cast<uint32_t>(found & kModuleMask) : 0;
  }

  // The modules' numbers begin anew.
  void forget() {
    for (auto& slot : slots_) {
      slot.store(0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr size_t kSlots = 1 << 15;
  static constexpr uint64_t kModuleMask = (1 << 20) - 1;
  static size_t index(int64_t sequence) { return static_cast<size_t>(sequence) % kSlots; }
  static uint64_t key(int64_t sequence) { return (static_cast<uint64_t>(sequence) + 1) << 20; }
  std::atomic<uint64_t>& slot(int64_t sequence) { return slots_[index(sequence)]; }

  std::array<std::atomic<uint64_t>, kSlots> slots_{};
};

}  // namespace prismdbg
