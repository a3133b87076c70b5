#include "recorder/sketch.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "recorder/vectorized.h"
#include "recorder/weights.h"

namespace prismdbg {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kLanes = 8;
constexpr int kElementBit = 60;
constexpr int kBlockLowBit = 52;
constexpr int kBlockHighBit = 44;

// Sums side by side, for vector units.
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double)), may_alias));

double sign(size_t number, int bit) {
  return (kWeights.of[number % kBlockWords] >> bit & 1) != 0 ? -1.0 : 1.0;
}

struct Signs {
  alignas(64) std::array<double, kBlock * kProjections> of{};  // those of the lanes' elements, projection by projection
  Signs() {
    for (size_t i = 0; i < kBlock; ++i) {
      for (size_t k = 0; k < kProjections; ++k) {
        of[(i / kLanes * kProjections + k) * kLanes + i % kLanes] = sign(i, kElementBit + static_cast<int>(k));
      }
    }
  }
};

const Signs kSigns;

// Elements of one block; behind the last one are zeros.
struct Values {
  alignas(64) std::array<double, kBlock> of;
};

struct Sums {
  uint64_t nonfinite = 0;
  Lanes squares{};
  Lanes projections[kProjections]{};
};

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Of a number with five bits of exponent, whose infinities become large numbers: exact, also where it is subnormal.
inline __attribute__((always_inline)) float from_half(uint32_t bits) {
  return from_bits((bits & 0x8000) << 16 | (bits & 0x7FFF) << 13) * 0x1p112F;
}

struct Float8 {
  using Stored = uint8_t;
  static constexpr uint8_t kExponent = 0x7C;
  static float value(uint8_t bits) { return from_half(static_cast<uint32_t>(bits) << 8); }
};
struct Float16 {
  using Stored = uint16_t;
  static constexpr uint16_t kExponent = 0x7C00;
  static float value(uint16_t bits) { return from_half(bits); }
};
struct BFloat16 {
  using Stored = uint16_t;
  static constexpr uint16_t kExponent = 0x7F80;
  static float value(uint16_t bits) { return from_bits(static_cast<uint32_t>(bits) << 16); }
};
struct Float32 {
  using Stored = uint32_t;
  static constexpr uint32_t kExponent = 0x7F800000;
  static float value(uint32_t bits) { return from_bits(bits); }
};
struct Float64 {
  using Stored = uint64_t;
  static constexpr uint64_t kExponent = 0x7FF0000000000000;
  static double value(uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
};

// The number of those that are not finite, which become zeros.
template <typename Format>
inline __attribute__((always_inline)) uint64_t load(const uint8_t* bytes, size_t count, Values& values) {
  using Stored = typename Format::Stored;
  uint32_t nonfinite = 0;
  for (size_t i = 0; i < count; ++i) {
    Stored bits;
    std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
    const bool is_finite = (bits & Format::kExponent) != Format::kExponent;
    nonfinite += is_finite ? 0 : 1;
    values.of[i] = Format::value(is_finite ? bits : Stored{0});
  }
  return nonfinite;
}

PRISMDBG_VECTORIZED uint64_t load_float8(const uint8_t* bytes, size_t count, Values& values) {
  return load<Float8>(bytes, count, values);
}
PRISMDBG_VECTORIZED uint64_t load_float16(const uint8_t* bytes, size_t count, Values& values) {
  return load<Float16>(bytes, count, values);
}
PRISMDBG_VECTORIZED uint64_t load_bfloat16(const uint8_t* bytes, size_t count, Values& values) {
  return load<BFloat16>(bytes, count, values);
}
PRISMDBG_VECTORIZED uint64_t load_float32(const uint8_t* bytes, size_t count, Values& values) {
  return load<Float32>(bytes, count, values);
}
PRISMDBG_VECTORIZED uint64_t load_float64(const uint8_t* bytes, size_t count, Values& values) {
  return load<Float64>(bytes, count, values);
}

uint64_t load(Numbers numbers, const uint8_t* bytes, size_t count, Values& values) {
  switch (numbers) {
    case Numbers::float8_e5m2: return load_float8(bytes, count, values);
    case Numbers::float16: return load_float16(bytes, count, values);
    case Numbers::bfloat16: return load_bfloat16(bytes, count, values);
    case Numbers::float32: return load_float32(bytes, count, values);
    case Numbers::float64: return load_float64(bytes, count, values);
    default: return 0;  // `has_sketch`
  }
}

size_t element_bytes(Numbers numbers) {
  switch (numbers) {
    case Numbers::float16:
    case Numbers::bfloat16: return 2;
    case Numbers::float32: return 4;
    case Numbers::float64: return 8;
    default: return 1;
  }
}

bool has_sketch(Numbers numbers) {
  switch (numbers) {
    case Numbers::exact:
    case Numbers::float8_e4m3fn:
    case Numbers::float8_fnuz:
    case Numbers::float8_e8m0fnu: return false;
    default: return true;
  }
}

double total(const Lanes& lanes) {
  double sum = 0;
  for (size_t j = 0; j < kLanes; ++j) {
    sum += lanes[j];
  }
  return sum;
}

// `count` is a multiple of the lanes.
PRISMDBG_VECTORIZED void add_block(const Values& values, size_t count, size_t number, Sums& sums) {
  Lanes squares{};
  Lanes projected[kProjections]{};
  const double* signs = kSigns.of.data();
  for (size_t i = 0; i < count; i += kLanes) {
    const Lanes x = *reinterpret_cast<const Lanes*>(values.of.data() + i);
    squares += x * x;
    for (size_t k = 0; k < kProjections; ++k, signs += kLanes) {
      projected[k] += x * *reinterpret_cast<const Lanes*>(signs);
    }
  }
  sums.squares += squares;
  for (size_t k = 0; k < kProjections; ++k) {
    const auto bit = static_cast<int>(k);
    const double of_block = sign(number, kBlockLowBit + bit) * sign(number / kBlockWords, kBlockHighBit + bit);
    sums.projections[k] += of_block * projected[k];
  }
}

}  // namespace

bool can_be_sketched(const std::vector<Span>& spans) {
  return !spans.empty() &&
         std::all_of(spans.begin(), spans.end(), [](const Span& span) { return has_sketch(span.numbers); });
}

SketchBody sketch(const std::vector<Span>& spans) {
  Sums sums;
  Values values;
  size_t number = 0;
  for (const Span& span : spans) {
    const auto* data = static_cast<const uint8_t*>(span.data);
    const size_t elements = span.size_bytes / element_bytes(span.numbers);
    for (size_t at = 0; at < elements; at += kBlock, ++number) {
      const size_t count = std::min(kBlock, elements - at);
      sums.nonfinite += load(span.numbers, data + at * element_bytes(span.numbers), count, values);
      const size_t padded = (count + kLanes - 1) / kLanes * kLanes;
      std::fill(values.of.begin() + static_cast<long>(count), values.of.begin() + static_cast<long>(padded), 0.0);
      add_block(values, padded, number, sums);
    }
  }
  SketchBody body{};
  body.nonfinite = sums.nonfinite;
  body.squares = total(sums.squares);
  std::transform(sums.projections, sums.projections + kProjections, body.projections, total);
  return body;
}

}  // namespace prismdbg
