// Counter-based random numbers, and reads at positions given as data.
#pragma once
#include "cpu/shared/simd.h"

namespace graphc {
// The products of the lower words of each 64 bits.
INLINE Half<uint64_t> product_of_words(Half<uint64_t> a, vec<uint32_t> b) {
#if defined(GRAPHC_AVX512)
  return (Half<uint64_t>)__builtin_ia32_pmuludq512_mask((vec<int32_t>)a, (vec<int32_t>)b, Eight{},
                                                        (unsigned char)-1);
#elif defined(GRAPHC_AVX2)
  return (Half<uint64_t>)__builtin_ia32_pmuludq256((vec<int32_t>)a, (vec<int32_t>)b);
#elif defined(__SSE2__) && GRAPHC_LANES == 4 && !defined(__clang__)
  return (Half<uint64_t>)__builtin_ia32_pmuludq128((vec<int32_t>)a, (vec<int32_t>)b);
#else
  constexpr uint64_t lower = 0xffffffff;
  return (a & lower) * ((Half<uint64_t>)b & lower);
#endif
}
// The high and low words of a 32 x 32 bit product: of every second lane, then of those between.
INLINE void multiply(uint32_t a, vec<uint32_t> b, vec<uint32_t>& high, vec<uint32_t>& low) {
  constexpr uint64_t lower = 0xffffffff;
  const Half<uint64_t> pairs = (Half<uint64_t>)b, first = product_of_words(pairs, splat(a)),
                       second = product_of_words(pairs >> 32, splat(a));
  high = (vec<uint32_t>)(first >> 32 | (second & ~lower));
  low = (vec<uint32_t>)((first & lower) | second << 32);
}

// Philox4x32-10, a word of four, as a float in [0, 1). Key (seed, number), counter (index low, index high, step, 0).
INLINE vec<float> philox(uint32_t seed, uint32_t number, vec<int32_t> step, vec<uint64_t> index,
                         int word = 0) {
  vec<uint32_t> c0 = convert<uint32_t>(index), c1 = convert<uint32_t>(index >> 32);
  vec<uint32_t> c2 = (vec<uint32_t>)step, c3{}, high0, low0, high1, low1;
  for (int round = 0; round < 10; round++) {
    multiply(0xD2511F53u, c0, high0, low0);
    multiply(0xCD9E8D57u, c2, high1, low1);
    c0 = high1 ^ c1 ^ seed;
    c1 = low1;
    c2 = high0 ^ c3 ^ number;
    c3 = low0;
    seed += 0x9E3779B9u;
    number += 0xBB67AE85u;
  }
  const vec<uint32_t> chosen = word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
  return convert<float>((vec<int32_t>)(chosen >> 8)) * 0x1p-24f;
}
// With the index (at + l * S) / D in lane l.
template <int S, int D> INLINE vec<float> philox_uniform(uint32_t seed, uint32_t number,
                                                         vec<int32_t> step, long at, int word = 0) {
  return philox(seed, number, step,
                (splat<uint64_t>(uint64_t(at)) + lanes<uint64_t>() * uint64_t(S)) / uint64_t(D),
                word);
}

// Element (at + l * S) / D + index[l] * STRIDE of a table in lane l; 0 where the condition does not hold or the index is not in
// [0, EXTENT). UNIFORM: all lanes have the same index.
template <int N, int S, int D, long STRIDE, long EXTENT, bool UNIFORM, class C, class T, class I>
INLINE vec<T> take(C condition, const T* table, long at, I index) {
  if constexpr (UNIFORM) {
    const long place = index[0];
    return load_if<N, S, D>(both(condition, place >= 0 && place < EXTENT), table,
                            at + place * (STRIDE * D));
  } else {
    vec<T> v{};
    for (int l = 0; l < N; l++) {
      bool live = index[l] >= 0 && index[l] < EXTENT;
      if constexpr (__is_same(C, bool)) live = live && condition;
      else live = live && condition[l];
      if (live)
        v[l] = __is_same(T, bool) ? T(-int(table[(at + l * long(S)) / D + index[l] * STRIDE]))
                                  : table[(at + l * long(S)) / D + index[l] * STRIDE];
    }
    return v;
  }
}
template <int N, int S, int D, long STRIDE, long EXTENT, bool UNIFORM, class C, class T, class I>
  requires is_narrow<T>
INLINE vec<T> take(C condition, const T* table, long at, I index) {
  return decode<T>(
      take<N, S, D, STRIDE, EXTENT, UNIFORM>(condition, (const uint16_t*)table, at, index));
}
template <int N, int S, int D, long STRIDE, long EXTENT, bool UNIFORM, class C, class I>
INLINE mask take(C condition, const bool* table, long at, I index) {
  return as_mask(take<N, S, D, STRIDE, EXTENT, UNIFORM>(condition, (const uint8_t*)table, at,
                                                        index) != vec<uint8_t>{});
}

// How many of the EXTENT ascending elements from (at + l * S) / D on, STRIDE apart, are less than value[l] (or equal, if RIGHT) in
// lane l; NaN is larger than anything. 0 where the condition does not hold.
template <int N, int S, int D, long STRIDE, long EXTENT, bool RIGHT, class C, class T, class V>
INLINE vec<int64_t> search(C condition, const T* table, long at, V value) {
  vec<int64_t> found{};
  for (int l = 0; l < N; l++) {
    bool live;
    if constexpr (__is_same(C, bool)) live = condition;
    else live = condition[l];
    const T* const row = table + (at + l * long(S)) / D;
    long low = 0, high = live ? EXTENT : 0;
    while (low < high) {
      const long middle = (low + high) / 2;
      const T x = row[middle * STRIDE];
      const bool before = RIGHT ? x <= value[l] || value[l] != value[l]
                                : x < value[l] || (value[l] != value[l] && x == x);
      low = before ? middle + 1 : low;
      high = before ? high : middle;
    }
    found[l] = low;
  }
  return found;
}
}  // namespace graphc
