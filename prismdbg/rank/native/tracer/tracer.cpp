#include "tracer/tracer.h"

#include <pthread.h>

#include "process/guarded.h"

namespace prismdbg {

void Tracer::arm(const std::string& folder, bool is_direct, const void* module_code) {
  auto writer = folder.empty() ? nullptr : std::make_unique<TraceWriter>(background_, folder, is_direct);
  const std::lock_guard<std::mutex> lock(mutex_);
  LogWriter* names = writer ? &writer->names() : nullptr;
  if (armed_.load()) {  // a restored process, whose own files are elsewhere: what it knows goes over into the new ones
    names_->move_to(names);
  } else {
    begin_anew(names);
  }
  writer_ = std::move(writer);
  lost_.clear();
  lost_after_ = 0;
  for (DeviceTotals& of_device : totals_) {
    of_device.peak = of_device.allocated;
  }
  module_code_.store(module_code);
  for (auto& [address, block] : blocks_) {
    block.is_before = true;
    write(MemoryKind::before, reinterpret_cast<uint64_t>(address), block, block.site, block.is_backend ? kMemoryBackend : 0);
  }
  for (const auto& [address, segment] : segments_) {
    write_segment(MemoryKind::reserved, address, segment);
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
  totals_.assign(1, {});
  segments_.clear();
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
    guarded([&] { writer_->close(); }, [&](const char* reason) { lose_locked(reason); });
  }
}

void Tracer::reopen_files() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (writer_) {
    guarded([&] { writer_->reopen(); }, [&](const char* reason) { lose_locked(reason); });
  }
}

void Tracer::set_filters(std::vector<TraceFilter> filters, Callback callback) {
  auto made = std::make_shared<Callback>(std::move(callback));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    reports_.store(*made != nullptr && !filters.empty());
    filters_ = std::move(filters);
    callback_.swap(made);
  }  // the old one takes Python's lock when it goes, whose holder may wait for the tracer's
}

void Tracer::set_module_namer(ModuleNamer namer) {
  auto made = std::make_shared<ModuleNamer>(std::move(namer));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    namer_.swap(made);
  }
}

void Tracer::forget_module(const void* module) {
  const std::lock_guard<std::mutex> lock(mutex_);
  modules_.erase(module);
}

void Tracer::set_cap(uint64_t cap_bytes, std::string hint) {
  const std::lock_guard<std::mutex> lock(mutex_);
  cap_bytes_ = cap_bytes;
  cap_hint_ = std::move(hint);
}

bool Tracer::add_before(const void* address, uint64_t size_bytes, uint16_t device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Block block;
  block.device = device;
  block.size_bytes = size_bytes;
  block.moment = place().moment();
  block.is_before = true;
  const auto [entry, is_new] = blocks_.try_emplace(address, block);
  if (!is_new) {
    return false;
  }
  entry->second.number = ++block_count_;
  count(block, /*is_made=*/true);
  write(MemoryKind::before, reinterpret_cast<uint64_t>(address), entry->second, 0, 0);
  return true;
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
  if (writer_ && !writer_->is_closed()) {
    guarded(
        [&] {
          writer_->flush();
          writer_->sync();
        },
        [&](const char* reason) { lose_locked(reason); });
  }
  out.records = writer_ ? writer_->records() : lost_after_;
  out.device = largest_device();
  out.devices = totals_;
  out.refused = refused_;
  out.last_op = names_ ? names_->text_of(last_op_) : "";
  out.lost = lost_;
  return out;
}

void Tracer::lose(const char* reason) noexcept {
  guarded(
      [&] {
        const std::lock_guard<std::mutex> lock(mutex_);
        lose_locked(reason);
      },
      [](const char*) {});
}

void Tracer::lose_locked(const char* reason) {
  if (lost_.empty()) {
    lost_ = reason;
    lost_after_ = writer_ ? writer_->records() : 0;
  }
  writer_ = nullptr;
  if (names_) {
    names_->drop_log();
  }
}

namespace {

// The parent's stays behind in a forked child, for its lock may be held by a thread that is not there, and its files
// are closed there.
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
