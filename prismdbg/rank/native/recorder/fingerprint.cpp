#include "recorder/fingerprint.h"

#include <algorithm>
#include <cstring>

#include "recorder/vectorized.h"
#include "recorder/weights.h"

namespace prismdbg {
namespace {

constexpr size_t kBlockBytes = kBlockWords * sizeof(uint64_t);
constexpr size_t kPieceBytes = 8192;  // small enough to stay in the first-level cache between the passes over it
constexpr uint64_t kLength = 0xD6E8FEB86659FD93;

PRISMDBG_VECTORIZED uint64_t weighted_sum(const uint8_t* bytes, const uint64_t* weights, size_t words) {
  uint64_t sum = 0;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    sum += word * weights[i];
  }
  return sum;
}

// True if any lane of `Lane` bits, those of `flipped` inverted, has all of `exponent` set. The maximum vectorizes and needs
// no early exit.
template <typename Lane, Lane exponent, Lane flipped = 0>
inline __attribute__((always_inline)) bool any_saturated(const uint8_t* bytes, size_t size_bytes) {
  Lane highest = 0;
  for (size_t i = 0; i < size_bytes / sizeof(Lane); ++i) {
    Lane lane;
    std::memcpy(&lane, bytes + i * sizeof lane, sizeof lane);
    lane = (lane ^ flipped) & exponent;
    highest = highest > lane ? highest : lane;
  }
  return highest == exponent;
}

PRISMDBG_VECTORIZED bool nonfinite_float8_e5m2(const uint8_t* bytes, size_t size_bytes) {
  return any_saturated<uint8_t, 0x7C>(bytes, size_bytes);
}
PRISMDBG_VECTORIZED bool nonfinite_float8_e4m3fn(const uint8_t* bytes, size_t size_bytes) {
  return any_saturated<uint8_t, 0x7F>(bytes, size_bytes);
}
PRISMDBG_VECTORIZED bool nonfinite_float8_fnuz(const uint8_t* bytes, size_t size_bytes) {
  return any_saturated<uint8_t, 0xFF, 0x7F>(bytes, size_bytes);
}
PRISMDBG_VECTORIZED bool nonfinite_float8_e8m0fnu(const uint8_t* bytes, size_t size_bytes) {
  return any_saturated<uint8_t, 0xFF>(bytes, size_bytes);
}
PRISMDBG_VECTORIZED bool nonfinite_float16(const uint8_t* bytes, size_t size_bytes) {
  return any_saturated<uint16_t, 0x7C00>(bytes, size_bytes);
}
PRISMDBG_VECTORIZED bool nonfinite_bfloat16(const uint8_t* bytes, size_t size_bytes) {
  return any_saturated<uint16_t, 0x7F80>(bytes, size_bytes);
}
PRISMDBG_VECTORIZED bool nonfinite_float32(const uint8_t* bytes, size_t size_bytes) {
  return any_saturated<uint32_t, 0x7F800000>(bytes, size_bytes);
}
PRISMDBG_VECTORIZED bool nonfinite_float64(const uint8_t* bytes, size_t size_bytes) {
  return any_saturated<uint64_t, 0x7FF0000000000000>(bytes, size_bytes);
}

// The sum over a piece whose last word may be cut short: zeros stand in for the missing bytes.
uint64_t padded_sum(const uint8_t* bytes, size_t size_bytes, const uint64_t* weights) {
  const size_t words = size_bytes / sizeof(uint64_t);
  uint64_t sum = weighted_sum(bytes, weights, words);
  if (const size_t rest = size_bytes % sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + words * sizeof word, rest);
    sum += word * weights[words];
  }
  return sum;
}

}  // namespace

void Fingerprint::add(const Span& span) {
  const auto* data = static_cast<const uint8_t*>(span.data);
  uint64_t tensor = 0;
  for (size_t at = 0; at < span.size_bytes; at += kBlockBytes) {
    const size_t size = std::min(kBlockBytes, span.size_bytes - at);
    tensor = tensor * kGolden + scan_block(data + at, size, span.numbers);
  }
  add_summed(tensor, span.size_bytes, false);
}

void Fingerprint::add_summed(uint64_t sum, size_t size_bytes, bool nonfinite) {
  value_ = mix64(value_ * kGolden + mix64(sum ^ (size_bytes * kLength)));
  nonfinite_ = nonfinite_ || nonfinite;
}

uint64_t Fingerprint::scan_block(const uint8_t* block, size_t size_bytes, Numbers numbers) {
  uint64_t sum = 0;
  for (size_t at = 0; at < size_bytes; at += kPieceBytes) {
    const size_t size = std::min(kPieceBytes, size_bytes - at);
    if (hash_) {
      sum += padded_sum(block + at, size, kWeights.of.data() + at / sizeof(uint64_t));
    }
    if (look_ && !nonfinite_) {
      look(block + at, size, numbers);
    }
  }
  return sum;
}

void Fingerprint::look(const uint8_t* data, size_t size_bytes, Numbers numbers) {
  switch (numbers) {
    case Numbers::exact: return;
    case Numbers::float8_e5m2: nonfinite_ = nonfinite_float8_e5m2(data, size_bytes); return;
    case Numbers::float8_e4m3fn: nonfinite_ = nonfinite_float8_e4m3fn(data, size_bytes); return;
    case Numbers::float8_fnuz: nonfinite_ = nonfinite_float8_fnuz(data, size_bytes); return;
    case Numbers::float8_e8m0fnu: nonfinite_ = nonfinite_float8_e8m0fnu(data, size_bytes); return;
    case Numbers::float16: nonfinite_ = nonfinite_float16(data, size_bytes); return;
    case Numbers::bfloat16: nonfinite_ = nonfinite_bfloat16(data, size_bytes); return;
    case Numbers::float32: nonfinite_ = nonfinite_float32(data, size_bytes); return;
    case Numbers::float64: nonfinite_ = nonfinite_float64(data, size_bytes); return;
  }
}

}  // namespace prismdbg
