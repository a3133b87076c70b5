// Fingerprint of tensor bytes, the same as prismdbg/rank/c10d/fingerprint.py computes with torch: 64 bits that know
// order, length and NaN. One pass over memory hashes and looks for values that are not finite.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prismdbg {

// How the bytes of a tensor hold floating-point numbers, if they do.
enum class Numbers : uint8_t {
  exact,
  float8_e5m2,
  float8_e4m3fn,  // this one and the next two have no infinity, and NaN where all bits but the sign are set,
  float8_fnuz,    // where only that of the sign is,
  float8_e8m0fnu,  // and where all are set
  float16,
  bfloat16,
  float32,
  float64
};

// Contiguous bytes of one tensor.
struct Span {
  const void* data = nullptr;
  size_t size_bytes = 0;
  Numbers numbers = Numbers::exact;
};

class Fingerprint {
 public:
  Fingerprint(bool hash, bool look_for_nonfinite) : hash_(hash), look_(look_for_nonfinite) {}

  // Adds one tensor.
  void add(const Span& span);
  // Adds one that was looked at elsewhere. sum: of its words by their weights, and of its blocks by Horner's rule.
  void add_summed(uint64_t sum, size_t size_bytes, bool nonfinite);

  uint64_t value() const { return value_; }
  bool nonfinite() const { return nonfinite_; }

 private:
  uint64_t scan_block(const uint8_t* block, size_t size_bytes, Numbers numbers);
  void look(const uint8_t* data, size_t size_bytes, Numbers numbers);

  bool hash_;
  bool look_;
  bool nonfinite_ = false;
  uint64_t value_ = 0;
};

}  // namespace prismdbg
