// The bytes of a rank's log, as prismdbg/capsule/log/format.py defines them. Little-endian machines only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prismdbg {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the log is little-endian");

constexpr char kMagic[8] = {'P', 'R', 'S', 'M', 'L', 'O', 'G', '1'};
constexpr uint32_t kVersion = 1;
constexpr uint8_t kNoReduceOp = 255;
constexpr int32_t kNoPeer = -1;

enum class Kind : uint16_t {
  text = 1,
  stack = 2,
  group = 3,
  issue = 4,
  complete = 5,
  step = 6,
  note = 7,
  end = 0xFFFF,
};

enum class Status : uint8_t { ok = 1, failed = 2 };

constexpr uint8_t kIssueAsync = 1;
constexpr uint8_t kIssueP2p = 2;
constexpr uint8_t kIssueSentNonfinite = 4;
constexpr uint8_t kIssueHasFingerprint = 8;
constexpr uint8_t kIssueHasSketch = 16;
constexpr uint8_t kCompletePayload = 1;
constexpr uint8_t kCompleteReceivedNonfinite = 2;
constexpr uint8_t kCompleteHasFingerprint = 8;  // of what was sent, behind the body
constexpr uint8_t kCompleteSentNonfinite = 16;

struct SegmentHeader {
  char magic[8];
  uint32_t version;
  uint32_t segment;
  int32_t rank;
  uint32_t pid;
  int64_t wall_ns;
  int64_t monotonic_ns;
  uint64_t segment_bytes;
  uint64_t zeros[2];
};
static_assert(sizeof(SegmentHeader) == 64);

struct RecordHeader {
  uint32_t size;
  uint16_t kind;
  uint16_t zero;
};
static_assert(sizeof(RecordHeader) == 8);

struct IssueBody {
  uint64_t record_id;
  int64_t created_ns;
  uint64_t fingerprint;
  uint64_t thread;
  uint64_t sequence;
  uint32_t step;
  uint32_t collective;
  uint32_t op_text;
  uint32_t group_text;
  uint32_t stack;
  uint32_t device_text;
  int32_t root;
  int32_t tag;
  int32_t timeout_ms;
  uint8_t reduce_op;
  uint8_t flags;
  uint16_t zeros;
  uint32_t inputs;
  uint32_t outputs;
};
static_assert(sizeof(IssueBody) == 88);

struct TensorEntry {
  uint8_t dtype;
  uint8_t dimensions;
  uint16_t zeros;
  uint32_t repeat;
};
static_assert(sizeof(TensorEntry) == 8);

constexpr size_t kProjections = 4;

// After the tensors of an issue that has one.
struct SketchBody {
  uint64_t nonfinite;
  double squares;
  double projections[kProjections];
};
static_assert(sizeof(SketchBody) == 48);

struct CompleteBody {
  uint64_t record_id;
  int64_t completed_ns;
  uint64_t payload_offset;
  uint64_t payload_bytes;
  uint32_t payload_segment;
  int32_t source;
  uint8_t status;
  uint8_t flags;
  uint16_t zeros;
  uint32_t more_zeros;
};
static_assert(sizeof(CompleteBody) == 48);

struct StepBody {
  uint32_t step;
  uint32_t zeros;
  int64_t time_ns;
  uint8_t source;
  uint8_t more_zeros[7];
};
static_assert(sizeof(StepBody) == 24);

struct TextBody {
  uint32_t number;
  uint32_t bytes;
};

struct StackBody {
  uint32_t number;
  uint32_t frames;
};

struct FrameEntry {
  uint32_t file_text;
  uint32_t line;
  uint32_t function_text;
};
static_assert(sizeof(FrameEntry) == 12);

}  // namespace prismdbg
