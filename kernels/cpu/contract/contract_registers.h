// Register operations of a contraction: partial loads, sums over lanes, the maximum of a window.
#pragma once
#include "cpu/shared/random.h"
#include "cpu/shared/special.h"
#include "cpu/shared/transpose.h"

namespace graphc::contract {

constexpr long floor_div(long a, long b) { return a / b - (a % b < 0); }
// Whether `value` is a multiple of `divisor` in [0, end).
constexpr bool exists(long value, long end, long divisor) {
  return value >= 0 && value < end && value % divisor == 0;
}

constexpr int prefix(unsigned mask) {  // live lanes if they are the first ones, or -1
  int n = 0;
  while (n < W && (mask >> n & 1)) n++;
  return mask >> n == 0 && n > 0 ? n : -1;
}

constexpr unsigned every_second_of(unsigned mask) {  // bit i at place 2 i
  unsigned wide = 0;
  for (int i = 0; i < 8; i++) wide |= (mask >> i & 1) << 2 * i;
  return wide;
}

#if defined(GRAPHC_AVX512)
// Registers of 64 bytes. Masked lanes are not touched; inserting lanes one by one would compile for
// seconds.
template <unsigned MASK, int STEP>
INLINE vec<float> fetch_words(const void* p) {
  const vec<float> zeros{};
  const float* words = (const float*)p;
  if constexpr (STEP == 1)
    return __builtin_ia32_loadups512_mask(words, zeros, (unsigned short)MASK);
  else if constexpr (STEP == 2)
    return every_second<float>(
        __builtin_ia32_loadups512_mask(words, zeros, (unsigned short)every_second_of(MASK & 0xff)),
        __builtin_ia32_loadups512_mask(words + W - 1, zeros,
                                       (unsigned short)(every_second_of(MASK >> 8) << 1)),
        AllLanes{});
  else
    return __builtin_ia32_gathersiv16sf(zeros, p, lanes<int32_t>() * STEP, (unsigned short)MASK, 4);
}
template <unsigned MASK, int STEP, int... L>
INLINE Half<double> fetch_half(const void* p, Lanes<L...>) {
  if constexpr (STEP == 1)
    return (Half<double>)__builtin_ia32_loaddqudi512_mask((const long long*)p, Eight{},
                                                          (unsigned char)MASK);
  else
    return __builtin_ia32_gathersiv8df(Half<double>{}, p, Half<int32_t>{(L * STEP)...},
                                       (unsigned char)MASK, 8);
}
#endif
// The lanes of `mask` from p[lane * STEP]; the others are zero and not touched.
template <unsigned MASK, int STEP, class T>
INLINE vec<T> fetch(const T* p) {
  constexpr int live = prefix(MASK);
  if constexpr (STEP == 0) {
    return splat(*p);
  } else if constexpr ((STEP == 1 || STEP == 2) && live >= 0) {
    return load<live, STEP>(p);
  } else {
#if defined(GRAPHC_AVX512)
    if constexpr (is_wide<T>)
      return {(Half<T>)fetch_half<MASK & 0xff, STEP>(p, HalfLanes{}),
              (Half<T>)fetch_half<(MASK >> 8), STEP>(p + W / 2 * STEP, HalfLanes{})};
    else return (vec<T>)fetch_words<MASK, STEP>(p);
#endif
    vec<T> v{};
    for (int l = 0; l < W; l++)
      if (MASK >> l & 1) v[l] = p[long(l) * STEP];
    return v;
  }
}

template <unsigned MASK, int STEP, class T>
  requires is_narrow<T>
INLINE vec<float> fetch(const T* p) {
  constexpr int live = prefix(MASK);
  if constexpr (STEP == 0) return splat<T>(*p);
  else if constexpr (live >= 0) return load<live, STEP>(p);
  else {
    vec<uint16_t> v{};
    for (int l = 0; l < W; l++)
      if (MASK >> l & 1) v[l] = p[long(l) * STEP].bits;
    return decode<T>(v);
  }
}

// Blocks of H lanes of a, then of b: the sums of neighbours.
template <int H, class V, int... L>
INLINE V add_blocks(V a, V b, Lanes<L...>) {
  return shuffle(a, b, Lanes<(L / H * 2 * H + L % H)...>{}) +
         shuffle(a, b, Lanes<(L / H * 2 * H + L % H + H)...>{});
}
// Lane i of the result is the sum of the lanes of v[i]: halves, quarters, ... in a fixed order.
template <int H = W / 2, class V>
INLINE V lanesums(V* v) {
#pragma GCC unroll 16
  for (int i = 0; i < H; i++) v[i] = add_blocks<H>(v[2 * i], v[2 * i + 1], AllLanes{});
  if constexpr (H > 1) return lanesums<H / 2>(v);
  return v[0];
}

// What the epilogue takes sums as, which are summed in T: integers wrap, as unsigned ones do.
template <class T> struct sum_of {
  using type = T;
};
template <> struct sum_of<uint32_t> {
  using type = int32_t;
};
template <> struct sum_of<uint64_t> {
  using type = int64_t;
};
template <class T> using SumOf = vec<typename sum_of<T>::type>;

template <class V>
struct Largest {
  V y;
  vec<uint8_t> place;
};
// The largest of a window's registers and the first place that holds it; NaN if there is one.
template <class V, class... More>
INLINE Largest<V> largest(V first, More... more) {
  vec<int32_t> place{};
  int number = 0;
  const auto consider = [&](V v) __attribute__((always_inline)) {
    const auto better = ~(v <= first) & (first == first);
    number++;
    first = select(better, v, first);
    place = select(as_mask(better), splat<int32_t>(number), place);
  };
  (consider(more), ...);
  return {first, convert<uint8_t>(place)};
}

}  // namespace graphc::contract
