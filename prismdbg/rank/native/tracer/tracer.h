// Operators, allocations and frees of the whole process, counted and kept while it is armed. Thread safe. What the
// program's threads call never throws: what goes wrong ends the trace and is remembered once.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "log/clock.h"
#include "log/python_stack.h"
#include "process/background_thread.h"
#include "tracer/trace_autograd.h"
#include "tracer/trace_filter.h"
#include "tracer/trace_names.h"
#include "tracer/trace_place.h"
#include "tracer/trace_thread.h"
#include "tracer/trace_writer.h"

namespace prismdbg {

// A live allocation.
struct Block {
  uint64_t number = 0;
  uint64_t size_bytes = 0;
  Moment moment;
  uint32_t site = 0;
  uint16_t device = kDeviceCpu;
  bool is_backend = false;
  bool is_before = false;  // older than the trace
};

// What is counted of one device. Bytes.
struct DeviceTotals {
  uint64_t allocated = 0;  // the program's own
  uint64_t backend = 0;
  uint64_t peak = 0;      // of the program's own
  uint64_t reserved = 0;  // the allocator got it from the device, in use or not; 0 for the CPU
};

// What the allocator of a device got from it in one piece.
struct DeviceSegment {
  uint64_t size_bytes = 0;
  uint16_t device = kDeviceCpu;
};

enum class DeviceAction : uint8_t { allocated = 0, freed = 1, reserved = 2, released = 3, refused = 4 };

struct FoundBlock {
  uint64_t address = 0;
  Block block;
  std::string outer_op;
  std::string op;
  std::string module;
  std::vector<NamedFrame> frames;
};

struct TraceStats {
  bool is_armed = false;
  bool is_closed = false;  // its files are
  uint64_t records = 0;
  uint64_t blocks = 0;
  uint16_t device = kDeviceCpu;  // the one with the largest peak
  std::vector<DeviceTotals> devices;  // by device number
  uint64_t refused = 0;          // allocations, for the cap or by a device's allocator
  std::string last_op;
  std::string lost;
};

class Tracer {
 public:
  // Called in the thread that made the event, without the tracer's lock. `matched`: the numbers of its filters.
  using Callback = std::function<void(const TraceEvent&, const std::string& module, const std::vector<int>& matched)>;
  // The name of a running nn.Module, by its address. Called with Python's lock.
  using ModuleNamer = std::function<std::string(const void*)>;

  // Steering, from Python without its lock. `folder` may be empty: then nothing is written. `module_code`: the code
  // whose first argument is the running module.
  void arm(const std::string& folder, bool is_direct, const void* module_code);
  void disarm();
  void close_files();
  void reopen_files();
  void set_filters(std::vector<TraceFilter> filters, Callback callback);
  void set_module_namer(ModuleNamer namer);
  void forget_module(const void* module);
  // The program's own blocks may hold this much, 0: any. `hint`: what a refusal says of where to look.
  void set_cap(uint64_t cap_bytes, std::string hint);
  // A block that was there before; false where it is known already.
  bool add_before(const void* address, uint64_t size_bytes, uint16_t device = kDeviceCpu);
  void add_segment_before(uint64_t address, const DeviceSegment& segment);
  std::optional<FoundBlock> find(uint64_t address);
  TraceStats stats();
  bool is_armed() const { return armed_.load(std::memory_order_acquire); }

  // Called where it happens.
  void op_begins(const char* name, int64_t sequence, bool is_backward) noexcept;
  void op_ends() noexcept {
    ThreadTrace& thread = this_thread();
    report_postponed(thread);
    thread.leave();
    if (thread.is_kept && thread.depth() == 0) {
      thread.is_kept = false;
      thread.ended_ns = monotonic_ns();
    }
  }
  // A collective that this thread issued, or a step's begin: `place` was moved for it, and it goes on from there.
  void issued() noexcept { this_thread().issued_ns = monotonic_ns(); }
  void answered() noexcept;
  // This thread no longer waits for the work of the collective with that record number.
  void waited(uint64_t record_id, int64_t began_ns) noexcept;
  // Empty, or why the program may not have the block: it is then not counted, and whoever asks frees it.
  std::string allocated(const void* address, uint64_t size_bytes) noexcept;
  void freed(const void* address) noexcept;
  // Of another device's allocator, whose lock may be held: neither takes Python's lock nor waits for a client, whose
  // callback runs when the operator ends. `address` is free bytes where an allocation was refused.
  void device_event(DeviceAction action, uint16_t device, uint64_t address, uint64_t size_bytes) noexcept;

 private:
  // The Python stack here, and the module that runs; `is_old` where it is what the thread had last.
  uint32_t look_at_python(ThreadTrace& thread, bool& is_old);
  uint32_t module_text(const void* module);
  void outermost_begins(ThreadTrace& thread);
  TraceEvent event_here(MemoryKind kind, ThreadTrace& thread) const;
  // With the lock held.
  void begin_anew(LogWriter* names);
  DeviceTotals& totals(uint16_t device);
  uint16_t largest_device() const;
  TraceEvent device_block_made(ThreadTrace& thread, uint16_t device, uint64_t address, uint64_t size_bytes);
  TraceEvent device_block_freed(ThreadTrace& thread, uint64_t address);
  void device_segment(MemoryKind kind, uint64_t address, const DeviceSegment& segment);
  void cut_segments(uint64_t address, const DeviceSegment& cut);
  void device_refused(ThreadTrace& thread, uint16_t device, uint64_t size_bytes);
  void write_segment(MemoryKind kind, uint64_t address, const DeviceSegment& segment);
  uint32_t text(RunningOp* op);
  uint32_t site(ThreadTrace& thread, uint32_t stack);
  void write(MemoryKind kind, uint64_t address, const Block& block, uint32_t site, uint8_t flags);
  void write_time(MemoryKind kind, int64_t time_ns, uint64_t number) noexcept;
  void finish(TraceEvent& event, const void* address, const Block& block, uint32_t site, bool old_stack);
  bool is_too_much(const Block& block) const {
    return cap_bytes_ != 0 && !block.is_backend && totals_[kDeviceCpu].allocated + block.size_bytes > cap_bytes_;
  }
  std::string refuse(const Block& block, bool old_stack);
  void count(const Block& block, bool is_made);
  FoundBlock describe_locked(uint32_t site) const;

  void report(const TraceEvent& event) noexcept;
  void postpone(ThreadTrace& thread, const TraceEvent& event);
  void report_postponed(ThreadTrace& thread) noexcept {
    if (thread.has_postponed()) {
      thread.report_postponed([this](const TraceEvent& event) { report(event); });
    }
  }
  void lose(const char* reason) noexcept;
  void lose_locked(const char* reason);

  std::atomic<bool> armed_{false};
  std::atomic<bool> reports_{false};
  std::atomic<bool> has_devices_{false};  // an event of another device than the CPU was seen
  BackgroundThread background_;
  PythonStacks stacks_;
  std::atomic<const void*> module_code_{nullptr};
  AutogradModules autograd_modules_;

  std::mutex mutex_;  // guards what follows
  std::unique_ptr<TraceWriter> writer_;
  std::unique_ptr<TraceNames> names_;
  std::unordered_map<const void*, Block> blocks_;
  std::unordered_map<const void*, uint32_t> modules_;
  std::vector<TraceFilter> filters_;
  std::shared_ptr<Callback> callback_;
  std::shared_ptr<ModuleNamer> namer_;
  uint32_t generation_ = 0;  // of the names
  uint64_t block_count_ = 0;
  std::vector<DeviceTotals> totals_{1};          // by device number
  std::map<uint64_t, DeviceSegment> segments_;         // by address
  uint64_t cap_bytes_ = 0;
  uint64_t refused_ = 0;
  std::string cap_hint_;
  uint32_t last_op_ = 0;
  std::string lost_;
  uint64_t lost_after_ = 0;  // records
};

// Never destroyed: blocks are freed until the process's very end. A forked child has a fresh one, which is not armed.
Tracer& tracer();

}  // namespace prismdbg
