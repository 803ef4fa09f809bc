// Loads and stores of registers (convert.h). They take N, the number of live lanes, and S, the
// elements from one lane to the next: 1 contiguous, 0 the same element in every lane, others a
// gather. Dead lanes read as 0 and are never written.
#pragma once
#include "cpu/shared/fma.h"

namespace graphc {
// The first N lanes as they are, the others `other`.
template <int N, class V> INLINE V keep(V v, V other) {
  if constexpr (N >= W) return v;
  else return select(lanes() < N, v, other);
}

template <int N, class T> INLINE vec<T> load_contiguous(const T* p) {
  if constexpr (is_wide<T>)
    return {load_half<least(N, W / 2)>(p), load_half<most(N - W / 2, 0)>(p + W / 2)};
  vec<T> v{};
#if defined(GRAPHC_AVX512)
  if constexpr (N < W && __is_same(T, float))
    return __builtin_ia32_loadups512_mask(p, v, (unsigned short)((1u << N) - 1));
  else if constexpr (N < W && sizeof(T) == 4)
    return (vec<T>)__builtin_ia32_loaddqusi512_mask((const int*)p, (vec<int>)v,
                                                    (unsigned short)((1u << N) - 1));
#elif defined(GRAPHC_AVX2)
  if constexpr (N < W && __is_same(T, float))
    return __builtin_ia32_maskloadps256((const vec<float>*)p, lanes() < N);
#endif
  __builtin_memcpy(&v, p, N * sizeof(T));
  return v;
}
template <int N, class T> INLINE void store_contiguous(T* p, vec<T> v) {
  if constexpr (is_wide<T>) {
    store_half<least(N, W / 2)>(p, v.low);
    store_half<most(N - W / 2, 0)>(p + W / 2, v.high);
    return;
  }
#if defined(GRAPHC_AVX512)
  if constexpr (N < W && __is_same(T, float))
    return __builtin_ia32_storeups512_mask(p, v, (unsigned short)((1u << N) - 1));
  else if constexpr (N < W && sizeof(T) == 4)
    return __builtin_ia32_storedqusi512_mask((int*)p, (vec<int>)v, (unsigned short)((1u << N) - 1));
#elif defined(GRAPHC_AVX2)
  if constexpr (N < W && __is_same(T, float))
    return __builtin_ia32_maskstoreps256((vec<float>*)p, lanes() < N, v);
#endif
  __builtin_memcpy(p, &v, N * sizeof(T));
}

// Elements PLACE of those of a and then of b.
template <class V, int... PLACE> INLINE V shuffle(V a, V b, Lanes<PLACE...> places) {
  if constexpr (is_wide<element<V>>)
    return {shuffled_half<0>(a, b, HalfLanes{}, places),
            shuffled_half<1>(a, b, HalfLanes{}, places)};
  else return __builtin_shufflevector(a, b, PLACE...);
}
// Every second element of a from element 0 on, and of b from W - 1 on: it ends with the last one wanted, nothing behind is read.
template <class T, int... L> INLINE vec<T> every_second(vec<T> a, vec<T> b, Lanes<L...>) {
  return shuffle(a, b, Lanes<(L < W / 2 ? 2 * L : 2 * L + 1)...>{});
}
template <int N = W, int S = 1, class T> INLINE vec<T> load(const T* p) {
  static_assert(N > 0 && N <= W);
  if constexpr (__is_same(T, bool)) return as_mask(load<N, S>((const uint8_t*)p) != vec<uint8_t>{});
  else if constexpr (S == 0) return splat<T>(*p);
  else if constexpr (is_narrow<T>) return decode<T>(load<N, S>((const uint16_t*)p));
  else if constexpr (S == 1) return load_contiguous<N>(p);
  else if constexpr (S == 2 && sizeof(T) >= 4) {
    vec<T> behind{};
    if constexpr (2 * N > W) behind = load_contiguous<2 * N - W>(p + W - 1);
    return every_second<T>(load_contiguous<least(2 * N - 1, W)>(p), behind, AllLanes{});
  } else {
    vec<T> v{};
    for (int l = 0; l < N; l++) v[l] = p[l * long(S)];
    return v;
  }
}
// The first N lanes; S == 0 writes lane 0.
template <int N = W, int S = 1, class T> INLINE void store(T* p, vec<T> v) {
  static_assert(N > 0 && N <= W);
  if constexpr (__is_same(T, bool)) store<N, S>((uint8_t*)p, narrow<uint8_t>(v & 1));
  else if constexpr (is_narrow<T>) store<N, S>((uint16_t*)p, encode<T>(v));
  else if constexpr (S == 0) *p = T(v[0]);
  else if constexpr (S == 1) store_contiguous<N>(p, v);
  else
    for (int l = 0; l < N; l++) p[l * long(S)] = T(v[l]);
}
// A whole register of a value with lanes: those beyond the batch become zeros.
template <int N = W, class T> INLINE void store_lanes(T* p, vec<T> v) {
  store<W, 1, T>(p, keep<N>(v, vec<T>{}));
}

// Element (at + l * S) / D of p in lane l where the condition holds, else 0; nothing else is read.
template <int N, int S, int D, class T> INLINE vec<T> load_if(mask m, const T* p, long at) {
  vec<T> v{};
#if defined(GRAPHC_AVX512)
  if constexpr (__is_same(T, float) &&
                (D == 1 || (D > 1 && S == 1))) {  // masked lanes are not touched
    const unsigned short live = __builtin_ia32_ptestmd512(m, m, (unsigned short)((1u << N) - 1));
    if constexpr (
        D >
        1)  // every D-th lane may be live: the first one's element, and those behind it in order
      return __builtin_ia32_expandloadsf512_mask(
          (const vec<float>*)(p + (at + __builtin_ctz(live | 1u << W)) / D), v, live);
    if constexpr (S == 1) return __builtin_ia32_loadups512_mask(p + at, v, live);
#if defined(__BMI2__)
    else if constexpr (S == 2) {  // bit l of the mask at place 2 l
      const unsigned wide = __builtin_ia32_pdep_si(live, 0x55555555);
      return every_second<T>(
          __builtin_ia32_loadups512_mask(p + at, v, (unsigned short)wide),
          __builtin_ia32_loadups512_mask(p + at + W - 1, v, (unsigned short)(wide >> 15)),
          AllLanes{});
    }
#endif
    else
      return __builtin_ia32_gathersiv16sf(v, p + at, lanes<int32_t>() * S, live, 4);
  }
#endif
  for (int l = 0; l < N; l++)
    if (m[l])
      v[l] = __is_same(T, bool) ? T(-int(p[(at + l * long(S)) / D])) : p[(at + l * long(S)) / D];
  return v;
}
template <int N, int S, int D, class T>
  requires is_narrow<T>
INLINE vec<T> load_if(mask m, const T* p, long at) {
  return decode<T>(load_if<N, S, D>(m, (const uint16_t*)p, at));
}
template <int N, int S, int D> INLINE mask load_if(mask m, const bool* p, long at) {
  return as_mask(load_if<N, S, D>(m, (const uint8_t*)p, at) != vec<uint8_t>{});
}
template <int N, int S, int D, class T> INLINE vec<T> load_if(bool m, const T* p, long at) {
  if (!m) return vec<T>{};
  if constexpr (S % D == 0 && S != 0) return load<N, S / D>(p + at / D);
  else if constexpr (S == 0) return splat<T>(p[at / D]);
  else return load_if<N, S, D>(splat<bool>(true), p, at);
}

// (at + l * S) / D in lane l.
template <class T, int S, int D> INLINE vec<T> iota(long at) {
  if constexpr (S == 0) return splat<T>(T(at / D));
  else if constexpr (D == 1 && sizeof(T) > 1) return splat<T>(T(at)) + lanes<T>() * T(S);
  else return convert<T>((splat<int64_t>(at) + lanes<int64_t>() * int64_t(S)) / int64_t(D));
}
// Whether at + l * S is a multiple of D in [0, HIGH). In 32 bits if HIGH fits, far places brought near: GCC 12 is slow with 64.
template <int S, long HIGH, int D> INLINE auto inside(long at) {
  constexpr long far = 1l << 29;
  if constexpr (S == 0) return bool(at >= 0 && at < HIGH && at % D == 0);
  else if constexpr (HIGH <= far && S * W <= far && -S * W <= far) {
    const vec<int32_t> place =
        splat<int32_t>(least(most(at, -2 * far), 2 * far)) + lanes<int32_t>() * S;
    const mask within = (place >= 0) & (place < int32_t(HIGH));
    if constexpr (D == 1) return within;
    else return mask(within & (place % D == 0));
  } else {
    const vec<int64_t> place = splat<int64_t>(at) + lanes<int64_t>() * int64_t(S);
    return mask(as_mask((place >= 0) & (place < HIGH) & (place % int64_t(D) == 0)));
  }
}

// Keeps v in a register as it is: an operand is not loaded again for each use, and sums of integers are
// not put together.
template <class V> INLINE void pin(V& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__AVX__) && GRAPHC_LANES == 8
  asm("" : "+x"(v));
#elif defined(__aarch64__) && GRAPHC_LANES == 4
  asm("" : "+w"(v));
#endif
}
template <class T> INLINE void pin(Wide<T>& v) { pin(v.low), pin(v.high); }

// Lane 0..W-1 in a fixed order: halves, quarters, ...
template <class V, class F> INLINE element<V> across(V v, F f) {
  element<V> x[W];
  for (int l = 0; l < W; l++) x[l] = v[l];
  for (int half = W / 2; half; half /= 2)
    for (int l = 0; l < half; l++) x[l] = f(x[l], x[l + half]);
  return x[0];
}
INLINE float lanesum(vec<float> v) {
#if GRAPHC_LANES == 16
  typedef float half __attribute__((vector_size(32)));
  typedef float quarter __attribute__((vector_size(16)));
  const half a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                 __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  quarter b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
#elif GRAPHC_LANES == 8
  typedef float quarter __attribute__((vector_size(16)));
  quarter b = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
  vec<float> b = v;
#endif
  b += __builtin_shufflevector(b, b, 2, 3, 0, 1);
  return b[0] + b[1];
}
template <class V> INLINE element<V> lanesum(V v) {
  return across(v, [](element<V> a, element<V> b) { return element<V>(a + b); });
}
}  // namespace graphc
