// Looks at one tensor's bytes on its device: the sum that a fingerprint is made of, and whether a value is not finite.
// recorder/fingerprint.cpp does the same on the host. `generate.py` makes scan_kernel.h of this; no other file is needed.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// As in device/scan.h.
struct Partial {
  u64 sum;
  u32 nonfinite;
  u32 blocks;
};
struct Result {
  u64 sum;
  u32 nonfinite;
  u32 zeros;
};

__device__ u64 read_word(const u8* data, u64 size_bytes, u64 at) {
  if (at + 8 <= size_bytes && ((u64)(data + at) & 7) == 0) {
    return *(const u64*)(data + at);
  }
  u64 word = 0;
  for (u64 i = 0; i < 8 && at + i < size_bytes; ++i) {
    word |= (u64)data[at + i] << (8 * i);
  }
  return word;
}

// lane_bits: 0 where there are no floating-point numbers. exponent: the bits of one lane that are all set in NaN and Inf.
__device__ u32 has_nonfinite(u64 word, u32 lane_bits, u64 exponent) {
  if (lane_bits == 64) {
    return (word & exponent) == exponent;
  }
  u32 found = 0;
  for (u32 shift = 0; lane_bits && shift < 64; shift += lane_bits) {
    found |= ((word >> shift) & exponent) == exponent;
  }
  return found;
}

// One block of threads for each 4096 words. weights: null where no sum is wanted. The last block to end writes `result`
// (in the host's memory) and leaves `partial` as it was: zeros.
extern "C" __global__ void prismdbg_scan(const u8* data, u64 size_bytes, const u64* weights, u64 golden, u32 lane_bits,
                                         u64 exponent, Partial* partial, Result* result) {
  __shared__ u64 sums[8];
  __shared__ u32 found[8];
  const u64 start = (u64)blockIdx.x * 4096;
  u64 sum = 0;
  u32 nonfinite = 0;
  for (u32 i = threadIdx.x; i < 4096; i += blockDim.x) {
    const u64 at = (start + i) * 8;
    if (at < size_bytes) {
      const u64 word = read_word(data, size_bytes, at);
      if (weights) {
        sum += word * weights[i];
      }
      nonfinite |= has_nonfinite(word, lane_bits, exponent);
    }
  }
  for (u32 step = 16; step > 0; step /= 2) {
    sum += __shfl_down_sync(0xFFFFFFFFu, sum, step);
    nonfinite |= __shfl_down_sync(0xFFFFFFFFu, nonfinite, step);
  }
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
    found[threadIdx.x / 32] = nonfinite;
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  for (u32 warp = 1; warp < blockDim.x / 32; ++warp) {
    sum += sums[warp];
    nonfinite |= found[warp];
  }
  u64 factor = 1;  // golden to the power of the blocks that follow: Horner's rule, in any order
  u64 power = golden;
  for (u32 left = gridDim.x - 1 - blockIdx.x; left; left >>= 1) {
    if (left & 1) {
      factor *= power;
    }
    power *= power;
  }
  atomicAdd(&partial->sum, sum * factor);
  if (nonfinite) {
    atomicOr(&partial->nonfinite, 1u);
  }
  __threadfence();
  if (atomicAdd(&partial->blocks, 1u) != gridDim.x - 1) {
    return;
  }
  __threadfence();
  result->sum = atomicExch(&partial->sum, 0ull);
  result->nonfinite = atomicExch(&partial->nonfinite, 0u);
  atomicExch(&partial->blocks, 0u);
  __threadfence_system();
}
