// factor.cuh: factorizations of matrices, each by the threads of a block (factorizations.h).
//
// Block: any number of threads. No shared memory.
#pragma once
#include "cuda/shared/memory.cuh"

// Loops that would spill registers if they were unrolled.
#define GRAPHC_ROLLED _Pragma("unroll 1")

namespace graphc::factors {
GRAPHC_INLINE float root(float x) { return ::sqrtf(x); }
GRAPHC_INLINE double root(double x) { return ::sqrt(x); }
template <class T>
GRAPHC_INLINE T not_a_number() {
  return T(__builtin_nan(""));
}

// One column.
struct Element {
  template <class T>
  GRAPHC_INLINE T zeros() const {
    return 0;
  }
  template <class T>
  GRAPHC_INLINE T load(const T* p) const {
    return *p;
  }
  template <class T>
  GRAPHC_INLINE T operand(const T* p) const {
    return *p;
  }
  template <class T>
  GRAPHC_INLINE void store(T* p, T x) const {
    *p = x;
  }
};

// The threads of a block.
struct Threads {
  template <class F>
  GRAPHC_INLINE void each(long begin, long end, const F& f) const {
    GRAPHC_ROLLED for (long i = begin + threadIdx.x; i < end; i += blockDim.x) f(i);
  }
  template <class T, class F>
  GRAPHC_INLINE void columns(long begin, long end, const F& f) const {
    each(begin, end, [&](long k) { f(k, Element{}); });
  }
  template <class T>
  GRAPHC_INLINE long strip(long n) const {
    return n;
  }
  GRAPHC_INLINE long whole(long i) const { return i; }
  static constexpr int ROOTS = 1;
  GRAPHC_INLINE void sync() const { __syncthreads(); }
  GRAPHC_INLINE bool first() const { return threadIdx.x == 0; }
};
}  // namespace graphc::factors

#define GRAPHC_FACTORS GRAPHC_INLINE
#define GRAPHC_UNROLLED _Pragma("unroll")
#include "spectra.h"
#undef GRAPHC_ROLLED
#undef GRAPHC_UNROLLED
#undef GRAPHC_FACTORS
