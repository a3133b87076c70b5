// The tracer's half that the program's threads call, where operators begin and blocks are made and freed.
#include <algorithm>
#include <sstream>

#include "log/clock.h"
#include "process/gil.h"
#include "process/guarded.h"
#include "tracer/tracer.h"

namespace prismdbg {
namespace {

// What torch calls its way into a dispatch mode written in Python, around operators that nobody observes.
constexpr std::string_view kMode = "PythonDispatchMode";

// What runs in this scope is the tracer's own.
class Reporting {
 public:
  explicit Reporting(ThreadTrace& thread) : thread_(thread) { thread_.reporting = true; }
  ~Reporting() { thread_.reporting = false; }
  Reporting(const Reporting&) = delete;
  Reporting& operator=(const Reporting&) = delete;

 private:
  ThreadTrace& thread_;
};

}  // namespace

void Tracer::op_begins(const char* name, int64_t sequence, bool is_backward) noexcept {
  ThreadTrace& thread = this_thread();
  thread.enter(name);
  if (!is_armed() || thread.is_silent()) {
    return;
  }
  guarded(
      [&] {
        report_postponed(thread);  // frees that no operator made
        if (thread.depth() == 1) {
          outermost_begins(thread);
        }
        if (sequence < 0) {
          return;
        }
        if (!is_backward) {
          autograd_modules_.made(sequence, thread.module);
        } else if (const uint32_t module = autograd_modules_.of(sequence)) {
          thread.module = module;
          thread.in_backward = true;
        }
      },
      [&](const char* reason) { lose(reason); });
}

void Tracer::outermost_begins(ThreadTrace& thread) {
  const std::string_view name = thread.outermost()->name;
  if (name.starts_with(kCollectives)) {  // it has a moment of its own
    return;
  }
  const bool is_counted = place().is_here();
  if (name == kMode || !(is_counted || has_devices_.load(std::memory_order_relaxed))) {
    return;
  }
  bool is_old = false;
  const uint32_t stack = look_at_python(thread, is_old);
  thread.is_stack_of_op = !is_old;
  if (!is_counted) {
    return;
  }
  place().next_op();
  TraceEvent event = event_here(MemoryKind::op, thread);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    event.site = site(thread, stack);
    event.device = largest_device();
    event.total_bytes = totals_[event.device].allocated;
    last_op_ = names_->site_of(event.site).outer_op;
    Block none;
    none.moment = event.moment;
    write(MemoryKind::op, static_cast<uint64_t>(thread.ended_ns), none, event.site, is_old ? kMemoryOldStack : 0);
  }
  thread.ended_ns = 0;
  thread.is_kept = true;
  report(event);
}

void Tracer::answered() noexcept {
  write_time(MemoryKind::answered, this_thread().issued_ns, 0);
}

void Tracer::waited(uint64_t record_id, int64_t began_ns) noexcept {
  write_time(MemoryKind::waited, began_ns, record_id);
}

void Tracer::write_time(MemoryKind kind, int64_t time_ns, uint64_t number) noexcept {
  if (!is_armed()) {
    return;
  }
  guarded(
      [&] {
        Block none;
        none.moment = place().moment();
        none.number = number;
        const std::lock_guard<std::mutex> lock(mutex_);
        write(kind, static_cast<uint64_t>(time_ns), none, 0, 0);
        if (writer_) {
          writer_->flush();
        }
      },
      [&](const char* reason) { lose(reason); });
}

TraceEvent Tracer::event_here(MemoryKind kind, ThreadTrace& thread) const {
  TraceEvent event;
  event.kind = kind;
  event.on_issuing_thread = place().is_here();
  event.moment = place().moment();
  event.op = thread.depth() ? thread.innermost()->name : "";
  event.outer_op = thread.depth() ? thread.outermost()->name : "";
  return event;
}

std::string Tracer::allocated(const void* address, uint64_t size_bytes) noexcept {
  ThreadTrace& thread = this_thread();
  std::string refusal;
  guarded(
      [&] {
        bool is_old = false;
        const uint32_t stack = look_at_python(thread, is_old);
        TraceEvent event = event_here(MemoryKind::allocation, thread);
        Block block;
        block.size_bytes = size_bytes;
        block.moment = event.moment;
        block.is_backend = thread.in_collective() || thread.is_backend();
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          block.site = site(thread, stack);
          if (is_too_much(block)) {
            refusal = refuse(block, is_old);
            return;
          }
          block.number = ++block_count_;
          blocks_.insert_or_assign(address, block);
          finish(event, address, block, block.site, is_old);
        }
        report(event);
      },
      [&](const char* reason) { lose(reason); });
  return refusal;
}

// Programs know running out of memory by words of the text: these are torch's own for a CPU and for a GPU.
std::string Tracer::refuse(const Block& block, bool old_stack) {
  ++refused_;
  write(MemoryKind::refused, 0, block, block.site, old_stack ? kMemoryOldStack : 0);
  const Site& made = names_->site_of(block.site);
  const std::string& op = names_->text_of(made.op);
  const std::string& module = names_->text_of(made.module);
  std::ostringstream out;
  out << "DefaultCPUAllocator: can't allocate memory: you tried to allocate " << block.size_bytes
      << " bytes. The program is out of memory under prismdbg's --memory-cap of " << cap_bytes_
      << " bytes: its own blocks hold " << totals_[kDeviceCpu].allocated << " bytes at " << block.moment.step << "."
      << block.moment.collective << "." << block.moment.op << ", in " << (op.empty() ? "no operator" : op)
      << (module.empty() ? "" : " of module ") << module
      << ". What the communication backend holds does not count. " << cap_hint_;
  return out.str();
}

void Tracer::freed(const void* address) noexcept {
  ThreadTrace& thread = this_thread();
  guarded(
      [&] {
        bool is_old = false;
        const uint32_t stack = thread.is_silent() ? 0 : look_at_python(thread, is_old);
        TraceEvent event = event_here(MemoryKind::free, thread);
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          const auto found = blocks_.find(address);
          if (found == blocks_.end()) {
            return;
          }
          Block block = found->second;
          block.moment = event.moment;
          blocks_.erase(found);
          finish(event, address, block, site(thread, stack), is_old);
        }
        report(event);
      },
      [&](const char* reason) { lose(reason); });
}

// Counts the block and writes the record of what happened to it.
void Tracer::finish(TraceEvent& event, const void* address, const Block& block, uint32_t site, bool old_stack) {
  count(block, event.kind == MemoryKind::allocation);
  event.is_backend = block.is_backend;
  event.site = site;
  event.address = reinterpret_cast<uint64_t>(address);
  event.size_bytes = block.size_bytes;
  event.block = block.number;
  event.device = block.device;
  event.total_bytes = totals(block.device).allocated;
  write(event.kind, event.address, block, site,
        (block.is_backend ? kMemoryBackend : 0) | (old_stack ? kMemoryOldStack : 0));
}

uint32_t Tracer::look_at_python(ThreadTrace& thread, bool& is_old) {
  if (python_is_ending() || PyGILState_GetThisThreadState() == nullptr) {
    return 0;
  }
  is_old = PythonStacks::needs_lock() && !holds_gil();
  if (is_old) {
    return thread.last_stack;
  }
  FirstArgument module{module_code_.load(std::memory_order_relaxed)};
  thread.last_stack = stacks_.current(
      [this](const std::vector<NamedFrame>& frames) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return names_->stack(frames);
      },
      &module);
  if (module.value != nullptr) {
    thread.module = module_text(module.value);
  } else if (!thread.in_backward) {
    thread.module = 0;
  }
  return thread.last_stack;
}

uint32_t Tracer::module_text(const void* module) {
  std::shared_ptr<ModuleNamer> namer;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto known = modules_.find(module); known != modules_.end()) {
      return known->second;
    }
    namer = namer_;
  }
  std::string name;
  if (namer) {
    const Reporting own(this_thread());
    name = (*namer)(module);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return modules_[module] = names_->text(name);
}

uint32_t Tracer::text(RunningOp* op) {
  if (op == nullptr) {
    return 0;
  }
  if (op->generation != generation_) {
    op->text = names_->text(op->name);
    op->generation = generation_;
  }
  return op->text;
}

uint32_t Tracer::site(ThreadTrace& thread, uint32_t stack) {
  return names_->site({text(thread.outermost()), text(thread.innermost()), thread.module, stack});
}

void Tracer::write(MemoryKind kind, uint64_t address, const Block& block, uint32_t site, uint8_t flags) {
  if (!writer_) {
    return;
  }
  MemoryRecord record{};
  record.kind = static_cast<uint8_t>(kind);
  record.flags = flags;
  record.device = block.device;
  record.thread = native_thread();
  record.address = address;
  record.size_bytes = block.size_bytes;
  record.time_ns = monotonic_ns();
  record.step = block.moment.step;
  record.collective = block.moment.collective;
  record.op = block.moment.op;
  record.site = site;
  record.block = block.number;
  record.total_bytes = totals(block.device).allocated;
  writer_->append(record);
}

DeviceTotals& Tracer::totals(uint16_t device) {
  if (device >= totals_.size()) {
    totals_.resize(device + 1);
  }
  return totals_[device];
}

// The CPU where all are alike.
uint16_t Tracer::largest_device() const {
  const auto larger = [](const DeviceTotals& one, const DeviceTotals& other) { return one.peak < other.peak; };
  return static_cast<uint16_t>(std::max_element(totals_.begin(), totals_.end(), larger) - totals_.begin());
}

void Tracer::count(const Block& block, bool is_made) {
  DeviceTotals& of_device = totals(block.device);
  uint64_t& total = block.is_backend ? of_device.backend : of_device.allocated;
  total += is_made ? block.size_bytes : -block.size_bytes;
  of_device.peak = std::max(of_device.peak, of_device.allocated);
}

void Tracer::report(const TraceEvent& event) noexcept {
  ThreadTrace& thread = this_thread();
  if (!reports_.load(std::memory_order_acquire) || thread.is_silent() || python_is_ending()) {
    return;
  }
  guarded(
      [&] {
        std::vector<int> matched;
        std::shared_ptr<Callback> callback;
        std::string module;
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          matched = passing(filters_, event);
          if (matched.empty()) {
            return;
          }
          callback = callback_;
          module = names_->text_of(names_->site_of(event.site).module);
        }
        const Reporting own(thread);
        (*callback)(event, module, matched);
      },
      [&](const char*) {});  // the client's own affair
}

}  // namespace prismdbg
