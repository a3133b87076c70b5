#include "recorder/payload_slot.h"

namespace prismdbg {
namespace {

constexpr size_t kGatherBytes = 16 * 1024;

}  // namespace

PayloadSlot::PayloadSlot(WriteQueue& queue, std::shared_ptr<PayloadFile> file,
                         std::shared_ptr<std::vector<uint8_t>> memory, uint32_t segment, uint64_t offset,
                         std::atomic<int>& writers)
    : queue_(queue),
      file_(std::move(file)),
      memory_(std::move(memory)),
      segment_(segment),
      offset_(offset),
      next_(offset),
      writers_(writers) {
  writers_.fetch_add(1);
}

// The file goes before the count: whoever closes the log waits for the count.
PayloadSlot::~PayloadSlot() {
  file_ = nullptr;
  writers_.fetch_sub(1);
}

void PayloadSlot::add(const uint8_t* data, size_t size_bytes) {
  if (file_ && file_->opened && memory_->size() + size_bytes > kGatherBytes) {
    flush();
    if (size_bytes > kGatherBytes) {
      write(data, size_bytes);
      return;
    }
  }
  memory_->insert(memory_->end(), data, data + size_bytes);
}

void PayloadSlot::flush() {
  if (!file_ || memory_->empty()) {
    return;
  }
  if (file_->opened) {
    write(memory_->data(), memory_->size());
    memory_->clear();
    return;
  }
  const auto write_later = [path = file_->path, bytes = memory_, at = next_] {
    Descriptor(path, O_WRONLY | O_CREAT).write(bytes->data(), bytes->size(), at);
  };
  queue_.post(memory_->size(), write_later, /*is_required=*/false);
}

void PayloadSlot::write(const uint8_t* data, size_t size_bytes) {
  file_->opened->check();
  file_->opened->write(data, size_bytes, next_);
  next_ += size_bytes;
}

}  // namespace prismdbg
