// The bytes of a memory trace, as prismdbg/capsule/memory_format.py defines them. Little-endian machines only.
#pragma once

#include <cstdint>

namespace prismdbg {

constexpr char kMemoryMagic[8] = {'P', 'R', 'S', 'M', 'M', 'E', 'M', '1'};
constexpr uint32_t kMemoryVersion = 1;
constexpr size_t kMemorySegmentBytes = 4 << 20;
constexpr uint16_t kSiteRecord = 16;  // beside the log's own kinds, in the file of names

enum class MemoryKind : uint8_t {
  allocation = 1,
  free = 2,
  op = 3,
  before = 4,
  answered = 5,
  waited = 6,
  refused = 7,
  reserved = 8,
  released = 9,
};

constexpr uint8_t kMemoryBackend = 1;    // made by a communication backend, or by what stands in for it in a replay
constexpr uint8_t kMemoryOldStack = 2;   // the thread's last known Python stack: it did not hold Python's lock
constexpr uint16_t kDeviceCpu = 0;       // of another device: 1 + its index

// `count` records are whole; stored after them.
struct MemoryHeader {
  char magic[8];
  uint32_t version;
  uint32_t segment;
  uint32_t pid;
  uint32_t record_bytes;
  int64_t wall_ns;
  int64_t monotonic_ns;
  uint64_t capacity;
  uint64_t count;
  uint64_t zeros;
};
static_assert(sizeof(MemoryHeader) == 64);

// `block` numbers an allocation and its free alike; `total_bytes` is what the program's own have live
// afterwards on the record's device.
// `address` is a time where there is no block: of an operator, when the one before it on its thread had ended; of an
// answered collective, when it was issued; of a wait, when it began, and `block` is the collective's record number.
struct MemoryRecord {
  uint8_t kind;
  uint8_t flags;
  uint16_t device;
  uint32_t thread;
  uint64_t address;
  uint64_t size_bytes;
  int64_t time_ns;
  uint32_t step;
  uint32_t collective;
  uint32_t op;
  uint32_t site;
  uint64_t block;
  uint64_t total_bytes;
};
static_assert(sizeof(MemoryRecord) == 64);

// Where an event was made: numbers of texts and of a stack in the file of names.
struct SiteBody {
  uint32_t number;
  uint32_t outer_op_text;
  uint32_t op_text;
  uint32_t module_text;
  uint32_t stack;
  uint32_t zero;
};
static_assert(sizeof(SiteBody) == 24);

}  // namespace prismdbg
