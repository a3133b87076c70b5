#include "payload_slot.h"

namespace prismdbg {
namespace {

constexpr size_t kGatherBytes = 16 * 1024;

}  // namespace

PayloadSlot::PayloadSlot(std::shared_ptr<Descriptor> file, std::shared_ptr<std::vector<uint8_t>> memory,
                         uint32_t segment, uint64_t offset, std::atomic<int>& writers)
    : file_(std::move(file)),
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
  if (gathered_.size() + size_bytes > kGatherBytes) {
    flush();
  }
  if (size_bytes > kGatherBytes) {
    write(data, size_bytes);
  } else {
    gathered_.insert(gathered_.end(), data, data + size_bytes);
  }
}

void PayloadSlot::flush() {
  write(gathered_.data(), gathered_.size());
  gathered_.clear();
}

void PayloadSlot::write(const uint8_t* data, size_t size_bytes) {
  if (!file_) {
    memory_->insert(memory_->end(), data, data + size_bytes);
    return;
  }
  while (size_bytes > 0) {
    const ssize_t written = pwrite(file_->number(), data, size_bytes, static_cast<off_t>(next_));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      throw std::system_error(written < 0 ? errno : ENOSPC, std::generic_category(), "writing a payload");
    }
    data += written;
    size_bytes -= static_cast<size_t>(written);
    next_ += static_cast<uint64_t>(written);
  }
}

}  // namespace prismdbg
