// factor: factorizations of matrices, each by one thread.
#pragma once
#include "cpu/shared/elementary.h"

namespace graphc::factors {
INLINE float root(float x) { return __builtin_sqrtf(x); }
INLINE double root(double x) { return __builtin_sqrt(x); }
template <class T> constexpr T not_a_number() { return T(__builtin_nan("")); }

// A thread alone. Its loops have no order, so they fill registers.
struct Alone {
  template <class F> INLINE void each(long begin, long end, const F& f) const {
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (long i = begin; i < end; i++) f(i);
  }
  INLINE void sync() const {}
  INLINE bool first() const { return true; }
};
}  // namespace graphc::factors

#define GRAPHC_FACTORS inline
#define GRAPHC_UNROLLED _Pragma("GCC unroll 8")
#define GRAPHC_ROLLED
#include "spectra.h"
#undef GRAPHC_ROLLED
#undef GRAPHC_UNROLLED
#undef GRAPHC_FACTORS
