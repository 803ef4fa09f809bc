// factor: factorizations of matrices, each by one thread.
#pragma once
#include "cpu/shared/elementary.h"

namespace graphc::factors {
INLINE float root(float x) { return __builtin_sqrtf(x); }
INLINE double root(double x) { return __builtin_sqrt(x); }
template <class T> constexpr T not_a_number() { return T(__builtin_nan("")); }

// Some registers of neighbouring columns.
template <class T, int M> struct Several {
  vec<T> part[M];

  INLINE Several& operator+=(const Several& other) {
    for (int i = 0; i < M; i++) part[i] += other.part[i];
    return *this;
  }
  INLINE Several& operator*=(T factor) {
    for (int i = 0; i < M; i++) part[i] *= factor;
    return *this;
  }
  INLINE friend Several operator*(Several a, T factor) { return a *= factor; }
  INLINE friend Several operator-(Several a, const Several& b) {
    for (int i = 0; i < M; i++) a.part[i] -= b.part[i];
    return a;
  }
  INLINE friend Several operator-(T a, Several b) {
    for (int i = 0; i < M; i++) b.part[i] = a - b.part[i];
    return b;
  }
};

// Columns that a function of `columns` gets: registers, of which the first `kept` columns stay as they are; or one column.
template <int M, bool KEEPS> struct Registers {
  int kept = 0;

  template <class T> INLINE Several<T, M> zeros() const { return Several<T, M>{}; }
  template <class T> INLINE Several<T, M> load(const T* p) const {
    Several<T, M> x;
    for (int i = 0; i < M; i++) x.part[i] = graphc::load<W, 1>(p + i * W);
    return x;
  }
  // What several products read.
  template <class T> INLINE Several<T, M> operand(const T* p) const {
    Several<T, M> x = load(p);
    for (int i = 0; i < M; i++) pin(x.part[i]);
    return x;
  }
  template <class T> INLINE void store(T* p, const Several<T, M>& x) const {
    for (int i = 0; i < M; i++) {
      const vec<T> old = KEEPS ? graphc::load<W, 1>(p + i * W) : x.part[i];
      graphc::store<W, 1>(p + i * W, KEEPS ? select(lanes() < kept, old, x.part[i]) : x.part[i]);
    }
  }
};
struct Element {
  template <class T> INLINE T zeros() const { return 0; }
  template <class T> INLINE T load(const T* p) const { return *p; }
  template <class T> INLINE T operand(const T* p) const { return *p; }
  template <class T> INLINE void store(T* p, T x) const { *p = x; }
};

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
  // Registers from the end on; the last one reaches to columns before the first, which it keeps.
  template <class T, class F> INLINE void columns(long begin, long end, const F& f) const {
    long k = end;
    if (sizeof(T) < 8)
      for (; k - 2 * W >= begin; k -= 2 * W) f(k - 2 * W, Registers<2, false>{});
    for (; k - W >= begin; k -= W) f(k - W, Registers<1, false>{});
    if (k > begin && k >= W) f(k - W, Registers<1, true>{int(begin - (k - W))});
    else
      for (; k > begin; k--) f(k - 1, Element{});
  }
  INLINE long whole(long i) const { return i / W * W; }
  // So few columns stay in a cache with some hundred rows.
  template <class T> INLINE long strip(long n) const { return least(n, sizeof(T) < 8 ? 32 : 16); }
  // Roots of a secular equation that are computed together.
  static constexpr int ROOTS = 16;
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
