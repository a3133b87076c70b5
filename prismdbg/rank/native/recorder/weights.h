// Fixed pseudo-random words: what a fingerprint multiplies with, and from which a sketch takes its signs.
// prismdbg/rank/c10d/fingerprint.py has the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace prismdbg {

constexpr size_t kBlockWords = 4096;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

struct Weights {
  alignas(64) std::array<uint64_t, kBlockWords> of{};
  Weights() {
    for (size_t i = 0; i < kBlockWords; ++i) {
      of[i] = mix64((i + 1) * kGolden) | 1;
    }
  }
};

inline const Weights kWeights;

}  // namespace prismdbg
