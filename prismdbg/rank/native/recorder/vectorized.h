#pragma once

// One copy of each loop for the vector units a CPU may have; the loader picks, so the library runs on any x86-64.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#if __GNUC__ >= 12
#define PRISMDBG_VECTORIZED __attribute__((noinline, target_clones("arch=x86-64-v4", "avx2", "default")))
#else  // knows no level of the instruction set by its name
#define PRISMDBG_VECTORIZED __attribute__((noinline, target_clones("avx2", "default")))
#endif
#else
#define PRISMDBG_VECTORIZED __attribute__((noinline))
#endif
