// The register type and its conversions. A register holds W elements of any dtype: vec<float>,
// vec<int32_t>, ...; a boolean is a mask, W int32 lanes of 0 or -1. It uses the compiler's vector
// extension, so that GCC and clang generate vector instructions of any width, and builtins only
// where GCC 12 would move single elements.
#pragma once
#include "cpu/shared/wide.h"

namespace graphc {
template <class T> struct vector_of;
template <class V> struct element_of;
#define GRAPHC_VECTOR(T)                                        \
  template <> struct vector_of<T> {                             \
    typedef T type __attribute__((vector_size(W * sizeof(T)))); \
  };                                                            \
  template <> struct element_of<vector_of<T>::type> {           \
    using type = T;                                             \
  };
GRAPHC_VECTOR(float)
GRAPHC_VECTOR(int8_t)
GRAPHC_VECTOR(uint8_t)
GRAPHC_VECTOR(uint16_t)
GRAPHC_VECTOR(int32_t)
GRAPHC_VECTOR(uint32_t)
#undef GRAPHC_VECTOR
#if __SIZEOF_LONG__ == 4
// Where int and long are as wide, a comparison gives elements of the one that int32_t is not.
template <class T> struct other_word {
  using type = int;
};
template <> struct other_word<int> {
  using type = long;
};
typedef other_word<int32_t>::type compared __attribute__((vector_size(W * sizeof(int32_t))));
template <> struct element_of<compared> {
  using type = int32_t;
};
#endif
template <class T>
  requires is_wide<T>
struct vector_of<T> {
  using type = Wide<T>;
};
template <class T> struct element_of<Wide<T>> {
  using type = T;
};
template <> struct vector_of<bool> : vector_of<int32_t> {};
// Floats of two bytes, in memory alone: registers hold them as float.
struct half {
  uint16_t bits;
};
struct bfloat {
  uint16_t bits;
};
struct tf32 {};  // names what a float is rounded to
template <> struct vector_of<half> : vector_of<float> {};
template <> struct vector_of<bfloat> : vector_of<float> {};
template <class T> constexpr bool is_narrow = __is_same(T, half) || __is_same(T, bfloat);
template <class T> using vec = typename vector_of<T>::type;
using mask = vec<bool>;

template <class V> using element = typename element_of<V>::type;

// x - 0 is x, where 0 + x is 0 for a negative zero (and an addition).
template <class T> INLINE vec<T> splat(T x) { return x - vec<T>{}; }
template <> INLINE mask splat<bool>(bool x) { return mask{} - int32_t(x); }

// The lanes' numbers 0, 1, ...
template <class T = int32_t> INLINE vec<T> lanes() {
  vec<T> v{};
  for (int l = 0; l < W; l++) v[l] = element<vec<T>>(l);
  return v;
}

// Bytes to 32 bits and back. GCC 12 converts them one by one if asked by __builtin_convertvector.
INLINE vec<int32_t> widen(vec<uint8_t> v) {
#if defined(GRAPHC_AVX512)
  typedef char bytes __attribute__((vector_size(16)));
  return (vec<int32_t>)__builtin_ia32_pmovzxbd512_mask((bytes)v, vec<int>{}, (unsigned short)-1);
#else
  return __builtin_convertvector(v, vec<int32_t>);
#endif
}
INLINE vec<int32_t> widen(vec<int8_t> v) {
#if defined(GRAPHC_AVX512)
  typedef char bytes __attribute__((vector_size(16)));
  return (vec<int32_t>)__builtin_ia32_pmovsxbd512_mask((bytes)v, vec<int>{}, (unsigned short)-1);
#else
  return __builtin_convertvector(v, vec<int32_t>);
#endif
}
template <class T> INLINE vec<T> narrow(vec<int32_t> v) {
#if defined(GRAPHC_AVX512)
  typedef char bytes __attribute__((vector_size(16)));
  return (vec<T>)__builtin_ia32_pmovdb512_mask(v, bytes{}, (unsigned short)-1);
#else
  return __builtin_convertvector(v, vec<T>);
#endif
}

// 16 bits to 32 and back, whose upper half is dropped.
INLINE vec<uint32_t> widen(vec<uint16_t> v) {
#if defined(GRAPHC_AVX512)
  typedef short shorts __attribute__((vector_size(32)));
  return (vec<uint32_t>)__builtin_ia32_pmovzxwd512_mask((shorts)v, vec<int>{}, (unsigned short)-1);
#else
  return __builtin_convertvector(v, vec<uint32_t>);
#endif
}
INLINE vec<uint16_t> narrow(vec<uint32_t> v) {
#if defined(GRAPHC_AVX512)
  typedef short shorts __attribute__((vector_size(32)));
  return (vec<uint16_t>)__builtin_ia32_pmovdw512_mask((vec<int>)v, shorts{}, (unsigned short)-1);
#else
  return __builtin_convertvector(v, vec<uint16_t>);
#endif
}

// Floats of two bytes by their bits, rounded to nearest even. The builtins are instructions; what else stands here is exact on any
// processor, as every part of a number is moved or rounded by integers, or by an addition whose last digit is the one wanted. A NaN
// keeps the upper bits of what it carries and becomes quiet, as by the instructions.
template <class T> INLINE vec<float> decode(vec<uint16_t> bits);
template <class T> INLINE vec<uint16_t> encode(vec<float> v);
template <> INLINE vec<float> decode<bfloat>(vec<uint16_t> bits) {
  return (vec<float>)(widen(bits) << 16);
}
template <> INLINE vec<uint16_t> encode<bfloat>(vec<float> v) {
  const vec<uint32_t> u = (vec<uint32_t>)v, upper = u >> 16;
  const auto is_nan = v != v;
  return narrow(is_nan ? upper | 0x40 : (u + 0x7fff + (upper & 1)) >> 16);
}
#if defined(GRAPHC_AVX512)
typedef short shorts16 __attribute__((vector_size(32)));
template <> INLINE vec<float> decode<half>(vec<uint16_t> bits) {
  return __builtin_ia32_vcvtph2ps512_mask((shorts16)bits, vec<float>{}, (unsigned short)-1, 4);
}
template <> INLINE vec<uint16_t> encode<half>(vec<float> v) {
  return (vec<uint16_t>)__builtin_ia32_vcvtps2ph512_mask(v, 0, shorts16{}, (unsigned short)-1);
}
#elif defined(GRAPHC_AVX2) && defined(__F16C__)
typedef short shorts8 __attribute__((vector_size(16)));
template <> INLINE vec<float> decode<half>(vec<uint16_t> bits) {
  return __builtin_ia32_vcvtph2ps256((shorts8)bits);
}
template <> INLINE vec<uint16_t> encode<half>(vec<float> v) {
  return (vec<uint16_t>)__builtin_ia32_vcvtps2ph256(v, 0);
}
#else
template <> INLINE vec<float> decode<half>(vec<uint16_t> bits) {
  const vec<uint32_t> h = widen(bits), size = h & 0x7fff, moved = size << 13;
  const vec<float> small = __builtin_convertvector((vec<int32_t>)size, vec<float>) * 0x1p-24f;
  const vec<uint32_t> normal = moved + (112u << 23), infinity = moved | 0x7f800000u,
                      special = size > 0x7c00 ? infinity | 0x400000u : infinity;
  const vec<uint32_t> finite = size < 0x400 ? (vec<uint32_t>)small : normal;
  return (vec<float>)((size < 0x7c00 ? finite : special) | (h & 0x8000) << 16);
}
template <> INLINE vec<uint16_t> encode<half>(vec<float> v) {
  const vec<uint32_t> u = (vec<uint32_t>)v, size = u & 0x7fffffff;
  const vec<uint32_t> small = (vec<uint32_t>)((vec<float>)size + 0.5f) - 0x3f000000u;
  const vec<uint32_t> normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
  const vec<uint32_t> infinity = vec<uint32_t>{} + 0x7c00,
                      special =
                          size > 0x7f800000 ? infinity | 0x200 | (size >> 13 & 0x3ff) : infinity;
  const vec<uint32_t> finite = size < 0x38800000 ? small : normal;
  return narrow((size < 0x47800000 ? finite : special) | u >> 16 & 0x8000);
}
#endif
template <> INLINE vec<half> splat<half>(half x) { return decode<half>(splat(x.bits)); }
template <> INLINE vec<bfloat> splat<bfloat>(bfloat x) { return decode<bfloat>(splat(x.bits)); }
// An element of memory by itself.
template <class T> INLINE T value(T x) { return x; }
INLINE float value(half x) { return splat<half>(x)[0]; }
INLINE float value(bfloat x) { return splat<bfloat>(x)[0]; }
// A register of floats as a float of two bytes would hold them.
template <class T> INLINE vec<float> round_to(vec<float> v) { return decode<T>(encode<T>(v)); }

// The halves of a register of four-byte elements, and a register of such halves.
template <class T> struct Halves {
  Half<T> low, high;
};
template <class V, int... L> INLINE Halves<element<V>> halved(V v, Lanes<L...>) {
  return {__builtin_shufflevector(v, v, L...), __builtin_shufflevector(v, v, (L + W / 2)...)};
}
template <class V, int... L> INLINE vec<int32_t> lower_words(V v, Lanes<L...>) {
  return __builtin_shufflevector((vec<int32_t>)v.low, (vec<int32_t>)v.high, (2 * L)...);
}
template <class T, int... L> INLINE vec<T> whole(Half<T> low, Half<T> high, Lanes<L...>) {
#if defined(GRAPHC_AVX512)
  typedef long long four __attribute__((vector_size(32)));
  return (vec<T>)__builtin_ia32_inserti64x4_mask(
      (Eight)__builtin_ia32_si512_256si((Half<int32_t>)low), (four)high, 1, Eight{},
      (unsigned char)-1);
#else
  return __builtin_shufflevector(low, high, L...);
#endif
}
template <class T, class V> INLINE vec<T> convert(V v) {
  using E = element<V>;
  if constexpr (is_narrow<T>) return round_to<T>(convert<float>(v));
  else if constexpr (__is_same(vec<T>, V)) return v;
  else if constexpr (sizeof(T) == 1 && sizeof(E) > 1) return narrow<T>(convert<int32_t>(v));
  else if constexpr (sizeof(E) == 1 && sizeof(T) > 1) return convert<T>(widen(v));
  else if constexpr (is_wide<T> && is_wide<E>)
    return {convert_half<T>(v.low), convert_half<T>(v.high)};
  else if constexpr (is_wide<T>) {
    const auto h = halved(v, HalfLanes{});
    return {convert_half<T>(h.low), convert_half<T>(h.high)};
  } else if constexpr (is_wide<E> && !__is_same(E, double) && !__is_same(T, float))
    return (vec<T>)lower_words(v, AllLanes{});
  else if constexpr (is_wide<E>)
    return whole<T>(convert_half<T>(v.low), convert_half<T>(v.high), AllLanes{});
  else return __builtin_convertvector(v, vec<T>);
}

// The comparison of any vectors as a mask.
INLINE mask as_mask(vec<int32_t> m) { return m; }
INLINE mask as_mask(vec<int64_t> m) { return convert<int32_t>(m); }
INLINE mask as_mask(vec<int8_t> m) { return widen(m); }
INLINE bool any(mask m) {
#if defined(GRAPHC_AVX512)
  return __builtin_ia32_cmpd512_mask(m, mask{}, 4, (unsigned short)-1) != 0;
#else
  uint64_t words[W / 2], all = 0;
  __builtin_memcpy(words, &m, sizeof m);
  for (int i = 0; i < W / 2; i++) all |= words[i];
  return all != 0;
#endif
}

// a where m, a mask or a comparison of the same size or one bool, holds, else b.
template <class M, class V> INLINE V select(M m, V a, V b) {
  if constexpr (__is_same(M, bool)) return m ? a : b;
  else if constexpr (is_wide<element<V>>) {
#if defined(GRAPHC_AVX512)
    if constexpr (__is_same(M, mask)) {
      const unsigned which = __builtin_ia32_ptestmd512(m, m, (unsigned short)-1);
      return {(Half<element<V>>)__builtin_ia32_blendmq_512_mask((Eight)b.low, (Eight)a.low,
                                                                (unsigned char)which),
              (Half<element<V>>)__builtin_ia32_blendmq_512_mask((Eight)b.high, (Eight)a.high,
                                                                (unsigned char)(which >> 8))};
    }
#endif
    const auto n = convert<int64_t>(m);
    return {n.low ? a.low : b.low, n.high ? a.high : b.high};
  } else if constexpr (sizeof(element<V>) == 1 && sizeof(M) > sizeof(V))
    return narrow<int8_t>(m) ? a : b;
  else return m ? a : b;
}

// NaN in either argument is the result.
template <class V> INLINE V maximum(V a, V b) { return select((a > b) | (a != a), a, b); }
template <class V> INLINE V minimum(V a, V b) { return select((a < b) | (a != a), a, b); }

// Conditions: bool where all lanes agree, else a mask.
INLINE bool both(bool a, bool b) { return a && b; }
INLINE mask both(mask a, mask b) { return a & b; }
INLINE mask both(bool a, mask b) { return splat<bool>(a) & b; }
INLINE mask both(mask a, bool b) { return both(b, a); }

template <class T> INLINE vec<T> from_bool(mask m) {
  using E = element<vec<T>>;
  return select(m, splat<E>(1), splat<E>(0));
}
template <class V> INLINE mask to_bool(V v) { return as_mask(v != V{}); }
}  // namespace graphc
