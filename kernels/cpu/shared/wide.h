// Registers of 8-byte elements. W of them fill two machine registers, and GCC 12 compares, selects
// and converts a vector of both element by element. So they are two halves with the operators of
// the compiler's vectors; since no class can have `condition ? a : b`, select(condition, a, b)
// replaces it.
#pragma once
#include "cpu/shared/lanes.h"

namespace graphc {
template <class T> struct half_of;
#define GRAPHC_HALF(T)                                              \
  template <> struct half_of<T> {                                   \
    typedef T type __attribute__((vector_size(W / 2 * sizeof(T)))); \
  };
GRAPHC_HALF(float)
GRAPHC_HALF(int32_t)
GRAPHC_HALF(uint32_t)
GRAPHC_HALF(double)
GRAPHC_HALF(int64_t)
GRAPHC_HALF(uint64_t)
#undef GRAPHC_HALF
template <class T> using Half = typename half_of<T>::type;
#if defined(GRAPHC_AVX512)
typedef long long Eight __attribute__((vector_size(64)));
#endif

template <class T> struct Wide {
  Half<T> low, high;

  INLINE T operator[](int l) const { return l < W / 2 ? low[l] : high[l - W / 2]; }
  INLINE T& operator[](int l) { return ((T*)this)[l]; }
  // The same bits.
  template <class U> INLINE explicit operator Wide<U>() const {
    return {(Half<U>)low, (Half<U>)high};
  }
  INLINE Wide operator-() const { return {-low, -high}; }
  INLINE Wide operator~() const { return {~low, ~high}; }

#define GRAPHC_OPERATOR(op)                                                                     \
  friend INLINE Wide operator op(Wide a, Wide b) { return {a.low op b.low, a.high op b.high}; } \
  friend INLINE Wide operator op(Wide a, T b) { return {a.low op b, a.high op b}; }             \
  friend INLINE Wide operator op(T a, Wide b) { return {a op b.low, a op b.high}; }             \
  template <class B> INLINE Wide& operator op## = (B b) { return *this = *this op b; }
  GRAPHC_OPERATOR(+)
  GRAPHC_OPERATOR(-)
  GRAPHC_OPERATOR(*)
  GRAPHC_OPERATOR(/)
  GRAPHC_OPERATOR(%)
  GRAPHC_OPERATOR(&)
  GRAPHC_OPERATOR(|)
  GRAPHC_OPERATOR(^)
  GRAPHC_OPERATOR(<<)
  GRAPHC_OPERATOR(>>)
#undef GRAPHC_OPERATOR
#define GRAPHC_COMPARISON(op)                                                    \
  friend INLINE Wide<int64_t> operator op(Wide a, Wide b) {                      \
    return {(Half<int64_t>)(a.low op b.low), (Half<int64_t>)(a.high op b.high)}; \
  }                                                                              \
  friend INLINE Wide<int64_t> operator op(Wide a, T b) {                         \
    return {(Half<int64_t>)(a.low op b), (Half<int64_t>)(a.high op b)};          \
  }
  GRAPHC_COMPARISON(<)
  GRAPHC_COMPARISON(<=)
  GRAPHC_COMPARISON(>)
  GRAPHC_COMPARISON(>=)
  GRAPHC_COMPARISON(==)
  GRAPHC_COMPARISON(!=)
#undef GRAPHC_COMPARISON
};
template <class T> constexpr bool is_wide = sizeof(T) == 8;

// A half as elements of another type. GCC 12 converts between sizes a quarter at a time if asked by __builtin_convertvector.
template <class T, class H> INLINE Half<T> convert_half(H v) {
#if defined(GRAPHC_AVX512)
  constexpr unsigned char all = 255;
  if constexpr (__is_same(T, double) && __is_same(H, Half<float>))
    return __builtin_ia32_cvtps2pd512_mask(v, Half<T>{}, all, 4);
  else if constexpr (__is_same(T, double) && __is_same(H, Half<int32_t>))
    return __builtin_ia32_cvtdq2pd512_mask(v, Half<T>{}, all);
  else if constexpr (sizeof(T) == 8 && __is_same(H, Half<int32_t>))
    return (Half<T>)__builtin_ia32_pmovsxdq512_mask(v, Eight{}, all);
  else if constexpr (sizeof(T) == 8 && !__is_same(T, double) && __is_same(H, Half<uint32_t>))
    return (Half<T>)__builtin_ia32_pmovzxdq512_mask((Half<int32_t>)v, Eight{}, all);
#elif defined(GRAPHC_AVX2)
  if constexpr (__is_same(T, double) && __is_same(H, Half<float>))
    return __builtin_ia32_cvtps2pd256(v);
  else if constexpr (__is_same(T, double) && __is_same(H, Half<int32_t>))
    return __builtin_ia32_cvtdq2pd256(v);
  else if constexpr (sizeof(T) == 8 && __is_same(H, Half<int32_t>))
    return (Half<T>)__builtin_ia32_pmovsxdq256(v);
  else if constexpr (sizeof(T) == 8 && !__is_same(T, double) && __is_same(H, Half<uint32_t>))
    return (Half<T>)__builtin_ia32_pmovzxdq256((Half<int32_t>)v);
#endif
  return __builtin_convertvector(v, Half<T>);
}

// Half H of two registers' elements with the numbers PLACE, of which all lie in two of their four halves.
template <int H, class T, int... L, int... PLACE>
INLINE Half<T> shuffled_half(Wide<T> a, Wide<T> b, Lanes<L...>, Lanes<PLACE...>) {
  constexpr int half = W / 2, places[] = {PLACE...};
  constexpr int first = places[H * half] / half;
  constexpr int other = [] {
    int number = first;
    for (int l = 0; l < half; l++)
      if (places[H * half + l] / half != first) number = places[H * half + l] / half;
    return number;
  }();
  static_assert(
      ((places[H * half + L] / half == first || places[H * half + L] / half == other) && ...));
  const Half<T> halves[] = {a.low, a.high, b.low, b.high};
  return __builtin_shufflevector(
      halves[first], halves[other],
      (places[H * half + L] % half + (places[H * half + L] / half == first ? 0 : half))...);
}

// The first N elements of a half.
template <int N, class T> INLINE Half<T> load_half(const T* p) {
  Half<T> v{};
#if defined(GRAPHC_AVX512)
  if constexpr (N == 0) return v;
  else if constexpr (N < W / 2)
    return (Half<T>)__builtin_ia32_loaddqudi512_mask((const long long*)p, (Eight)v,
                                                     (unsigned char)((1u << N) - 1));
#endif
  __builtin_memcpy(&v, p, N * sizeof(T));
  return v;
}
template <int N, class T> INLINE void store_half(T* p, Half<T> v) {
#if defined(GRAPHC_AVX512)
  if constexpr (N == 0) return;
  else if constexpr (N < W / 2)
    return __builtin_ia32_storedqudi512_mask((long long*)p, (Eight)v,
                                             (unsigned char)((1u << N) - 1));
#endif
  __builtin_memcpy(p, &v, N * sizeof(T));
}
}  // namespace graphc
