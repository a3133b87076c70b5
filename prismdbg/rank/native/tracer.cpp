#include "tracer.h"

#include <pthread.h>

#include <algorithm>

#include "clock.h"
#include "gil.h"
#include "guarded.h"

namespace prismdbg {
namespace {

constexpr std::string_view kCollectives = "c10d::";

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

void Tracer::arm(const std::string& folder, const void* module_code) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto writer = folder.empty() ? nullptr : std::make_unique<TraceWriter>(housekeeper_, folder);
  LogWriter* names = writer ? &writer->names() : nullptr;
  if (armed_.load()) {  // a restored process, whose own files are elsewhere: what it knows goes over into the new ones
    names_->move_to(names);
  } else {
    begin_anew(names);
  }
  writer_ = std::move(writer);
  lost_.clear();
  peak_bytes_ = allocated_bytes_;
  module_code_.store(module_code);
  for (auto& [address, block] : blocks_) {
    block.is_before = true;
    write(MemoryKind::before, address, block, block.site, block.is_backend ? kMemoryBackend : 0);
  }
  armed_.store(true, std::memory_order_release);
}

// Blocks of an earlier trace may have been freed unseen.
void Tracer::begin_anew(LogWriter* names) {
  names_ = std::make_unique<TraceNames>(names);
  ++generation_;
  stacks_.forget();
  modules_.clear();
  autograd_modules_.forget();
  blocks_.clear();
  allocated_bytes_ = backend_bytes_ = 0;
  last_op_ = 0;
}

void Tracer::disarm() {
  const std::lock_guard<std::mutex> lock(mutex_);
  armed_.store(false, std::memory_order_release);
  writer_ = nullptr;
  if (names_) {
    names_->drop_log();
  }
}

void Tracer::close_files() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (writer_) {
    writer_->close();
  }
}

void Tracer::reopen_files() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (writer_) {
    writer_->reopen();
  }
}

void Tracer::set_filters(std::vector<TraceFilter> filters, Callback callback) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reports_.store(callback != nullptr && !filters.empty());
  filters_ = std::move(filters);
  callback_ = std::make_shared<Callback>(std::move(callback));
}

void Tracer::set_module_namer(ModuleNamer namer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  namer_ = std::make_shared<ModuleNamer>(std::move(namer));
}

void Tracer::forget_module(const void* module) {
  const std::lock_guard<std::mutex> lock(mutex_);
  modules_.erase(module);
}

bool Tracer::add_before(const void* address, uint64_t size_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Block block;
  block.size_bytes = size_bytes;
  block.moment = place().moment();
  block.is_before = true;
  const auto [entry, is_new] = blocks_.try_emplace(address, block);
  if (!is_new) {
    return false;
  }
  entry->second.number = ++block_count_;
  count(block, /*is_made=*/true);
  write(MemoryKind::before, address, entry->second, 0, 0);
  return true;
}

void Tracer::op_begins(const char* name, int64_t sequence, bool is_backward) noexcept {
  ThreadTrace& thread = this_thread();
  thread.enter(name);
  if (!is_armed() || thread.is_silent()) {
    return;
  }
  guarded(
      [&] {
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
    thread.in_collective = true;
    return;
  }
  if (!place().is_here()) {
    return;
  }
  place().next_op();
  bool is_old = false;
  const uint32_t stack = look_at_python(thread, is_old);
  TraceEvent event;
  event.on_issuing_thread = true;
  event.moment = place().moment();
  event.op = event.outer_op = name;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    event.site = site(thread, stack);
    event.total_bytes = allocated_bytes_;
    last_op_ = names_->site_of(event.site).outer_op;
    Block none;
    none.moment = event.moment;
    write(MemoryKind::op, nullptr, none, event.site, is_old ? kMemoryOldStack : 0);
  }
  report(event);
}

void Tracer::allocated(const void* address, uint64_t size_bytes) noexcept {
  ThreadTrace& thread = this_thread();
  guarded(
      [&] {
        bool is_old = false;
        const uint32_t stack = look_at_python(thread, is_old);
        TraceEvent event;
        event.kind = MemoryKind::allocation;
        event.is_backend = thread.in_collective || thread.is_backend();
        event.on_issuing_thread = place().is_here();
        event.moment = place().moment();
        event.op = thread.depth() ? thread.innermost()->name : "";
        event.outer_op = thread.depth() ? thread.outermost()->name : "";
        event.address = reinterpret_cast<uint64_t>(address);
        event.size_bytes = size_bytes;
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          event.site = site(thread, stack);
          const Block block{++block_count_, size_bytes, event.moment, event.site, kDeviceCpu, event.is_backend, false};
          blocks_.insert_or_assign(address, block);
          count(block, /*is_made=*/true);
          event.block = block.number;
          event.total_bytes = allocated_bytes_;
          const uint8_t flags = (block.is_backend ? kMemoryBackend : 0) | (is_old ? kMemoryOldStack : 0);
          write(MemoryKind::allocation, address, block, event.site, flags);
        }
        report(event);
      },
      [&](const char* reason) { lose(reason); });
}

void Tracer::freed(const void* address) noexcept {
  ThreadTrace& thread = this_thread();
  guarded(
      [&] {
        bool is_old = false;
        const uint32_t stack = thread.is_silent() ? 0 : look_at_python(thread, is_old);
        TraceEvent event;
        event.kind = MemoryKind::free;
        event.on_issuing_thread = place().is_here();
        event.moment = place().moment();
        event.op = thread.depth() ? thread.innermost()->name : "";
        event.outer_op = thread.depth() ? thread.outermost()->name : "";
        event.address = reinterpret_cast<uint64_t>(address);
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          const auto found = blocks_.find(address);
          if (found == blocks_.end()) {
            return;
          }
          Block block = found->second;
          blocks_.erase(found);
          count(block, /*is_made=*/false);
          event.site = site(thread, stack);
          event.is_backend = block.is_backend;
          event.size_bytes = block.size_bytes;
          event.block = block.number;
          event.total_bytes = allocated_bytes_;
          block.moment = event.moment;
          const uint8_t flags = (block.is_backend ? kMemoryBackend : 0) | (is_old ? kMemoryOldStack : 0);
          write(MemoryKind::free, address, block, event.site, flags);
        }
        report(event);
      },
      [&](const char* reason) { lose(reason); });
}

uint32_t Tracer::look_at_python(ThreadTrace& thread, bool& is_old) {
  if (python_is_ending() || PyGILState_GetThisThreadState() == nullptr) {
    return 0;
  }
  is_old = PythonStacks::needs_lock() && !PyGILState_Check();
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

void Tracer::write(MemoryKind kind, const void* address, const Block& block, uint32_t site, uint8_t flags) {
  if (!writer_) {
    return;
  }
  MemoryRecord record{};
  record.kind = static_cast<uint8_t>(kind);
  record.flags = flags;
  record.device = block.device;
  record.thread = native_thread();
  record.address = reinterpret_cast<uint64_t>(address);
  record.size_bytes = block.size_bytes;
  record.time_ns = monotonic_ns();
  record.step = block.moment.step;
  record.collective = block.moment.collective;
  record.op = block.moment.op;
  record.site = site;
  record.block = block.number;
  record.total_bytes = allocated_bytes_;
  writer_->append(record);
}

void Tracer::count(const Block& block, bool is_made) {
  uint64_t& total = block.is_backend ? backend_bytes_ : allocated_bytes_;
  total += is_made ? block.size_bytes : -block.size_bytes;
  peak_bytes_ = std::max(peak_bytes_, allocated_bytes_);
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

FoundBlock Tracer::describe_locked(uint32_t number) const {
  FoundBlock found;
  const Site& site = names_->site_of(number);
  found.outer_op = names_->text_of(site.outer_op);
  found.op = names_->text_of(site.op);
  found.module = names_->text_of(site.module);
  found.frames = names_->stack_of(site.stack);
  return found;
}

std::optional<FoundBlock> Tracer::find(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [start, block] : blocks_) {
    const auto first = reinterpret_cast<uint64_t>(start);
    if (first <= address && address < first + block.size_bytes) {
      FoundBlock found = describe_locked(block.site);
      found.address = first;
      found.block = block;
      return found;
    }
  }
  return std::nullopt;
}

TraceStats Tracer::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  TraceStats out;
  out.is_armed = armed_.load();
  out.is_closed = writer_ && writer_->is_closed();
  out.blocks = blocks_.size();
  if (writer_) {
    writer_->sync();
    out.records = writer_->records();
  }
  out.allocated_bytes = allocated_bytes_;
  out.backend_bytes = backend_bytes_;
  out.peak_bytes = peak_bytes_;
  out.last_op = names_ ? names_->text_of(last_op_) : "";
  out.lost = lost_;
  return out;
}

void Tracer::lose(const char* reason) noexcept {
  guarded(
      [&] {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (lost_.empty()) {
          lost_ = reason;
        }
        writer_ = nullptr;
        if (names_) {
          names_->drop_log();
        }
      },
      [](const char*) {});
}

namespace {

// The parent's stays behind in a forked child, for its lock may be held by a thread that is not there, and its files
// are not mapped there.
std::atomic<Tracer*>& current() {
  static std::atomic<Tracer*> pointer = [] {
    pthread_atfork(nullptr, nullptr, [] { current().store(new Tracer()); });
    return new Tracer();
  }();
  return pointer;
}

}  // namespace

Tracer& tracer() {
  return *current().load(std::memory_order_acquire);
}

}  // namespace prismdbg
