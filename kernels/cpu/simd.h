// The register type and its movement. A register holds W elements whatever their dtype: vec<float>, vec<int32_t>, ...; a boolean
// is a mask, W int32 lanes of 0 or -1. Written over the compiler's vector extension, so that GCC and clang make vector
// instructions of any width of it; builtins only where GCC 12 would move element by element. No standard headers but the
// integer types: headers would take most of a kernel's compile time.
//
// Loads and stores take N, the number of live lanes, and S, the elements from one lane to the next: 1 contiguous, 0 the same
// element in every lane, others a gather. Dead lanes read as 0 and are never written.
#pragma once
#include <stdint.h>

#define INLINE inline __attribute__((always_inline))
// A function of its own, once for all kernels of a translation unit, whatever they hand it.
#if defined(__clang__)
#define SHARED static __attribute__((noinline))
#else
#define SHARED static __attribute__((noipa))
#endif
#if !defined(GRAPHC_LANES)
#if defined(__AVX512F__)
#define GRAPHC_LANES 16
#elif defined(__AVX2__)
#define GRAPHC_LANES 8
#else
#define GRAPHC_LANES 4
#endif
#endif
#if defined(__AVX512F__) && GRAPHC_LANES == 16 && !defined(__clang__)
#define GRAPHC_AVX512 1
#endif
#if defined(__AVX2__) && GRAPHC_LANES == 8 && !defined(__clang__)
#define GRAPHC_AVX2 1
#endif

namespace graphc {
constexpr int W = GRAPHC_LANES;

constexpr long least(long a, long b) { return a < b ? a : b; }
constexpr long most(long a, long b) { return a > b ? a : b; }

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
GRAPHC_VECTOR(double)
GRAPHC_VECTOR(int8_t)
GRAPHC_VECTOR(uint8_t)
GRAPHC_VECTOR(uint16_t)
GRAPHC_VECTOR(int32_t)
GRAPHC_VECTOR(uint32_t)
GRAPHC_VECTOR(int64_t)
GRAPHC_VECTOR(uint64_t)
#undef GRAPHC_VECTOR
template <> struct vector_of<bool> : vector_of<int32_t> {};
// Floats of two bytes, in memory alone: registers hold them as float.
struct half {
  uint16_t bits;
};
struct bfloat {
  uint16_t bits;
};
template <> struct vector_of<half> : vector_of<float> {};
template <> struct vector_of<bfloat> : vector_of<float> {};
template <class T> constexpr bool is_narrow = __is_same(T, half) || __is_same(T, bfloat);
template <class T> using vec = typename vector_of<T>::type;
using mask = vec<bool>;

// The numbers of the lanes, as a pack.
template <int... L> struct Lanes {};
#if GRAPHC_LANES == 16
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
#elif GRAPHC_LANES == 8
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7>;
#else
using AllLanes = Lanes<0, 1, 2, 3>;
#endif

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
// processor, as every part of a number is moved or rounded by integers, or by an addition whose last digit is the one wanted.
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
  const vec<uint32_t> normal = moved + (112u << 23), special = moved | 0x7f800000u;
  const vec<uint32_t> finite = size < 0x400 ? (vec<uint32_t>)small : normal;
  return (vec<float>)((size < 0x7c00 ? finite : special) | (h & 0x8000) << 16);
}
template <> INLINE vec<uint16_t> encode<half>(vec<float> v) {
  const vec<uint32_t> u = (vec<uint32_t>)v, size = u & 0x7fffffff;
  const vec<uint32_t> small = (vec<uint32_t>)((vec<float>)size + 0.5f) - 0x3f000000u;
  const vec<uint32_t> normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
  const vec<uint32_t> infinity = vec<uint32_t>{} + 0x7c00,
                      special = size > 0x7f800000 ? infinity | 0x200 : infinity;
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

// The comparison of any vectors as a mask.
INLINE mask as_mask(vec<int32_t> m) { return m; }
INLINE mask as_mask(vec<int64_t> m) { return __builtin_convertvector(m, mask); }
INLINE mask as_mask(vec<int8_t> m) { return widen(m); }

// b where m holds, else a.
INLINE vec<float> select(mask m, vec<float> a, vec<float> b) { return m ? a : b; }
INLINE vec<int32_t> select(mask m, vec<int32_t> a, vec<int32_t> b) { return m ? a : b; }
INLINE vec<uint32_t> select(mask m, vec<uint32_t> a, vec<uint32_t> b) { return m ? a : b; }
INLINE vec<uint8_t> select(mask m, vec<uint8_t> a, vec<uint8_t> b) {
  return narrow<int8_t>(m) ? a : b;
}
INLINE vec<int8_t> select(mask m, vec<int8_t> a, vec<int8_t> b) {
  return narrow<int8_t>(m) ? a : b;
}
template <class V> INLINE V select(mask m, V a, V b) {
  static_assert(sizeof(element<V>) == 8);
  return __builtin_convertvector(m, vec<int64_t>) ? a : b;
}
template <class V> INLINE V select(bool m, V a, V b) { return m ? a : b; }

// Conditions: bool where all lanes agree, else a mask.
INLINE bool both(bool a, bool b) { return a && b; }
INLINE mask both(mask a, mask b) { return a & b; }
INLINE mask both(bool a, mask b) { return splat<bool>(a) & b; }
INLINE mask both(mask a, bool b) { return both(b, a); }

template <class T, class V> INLINE vec<T> convert(V v) {
  if constexpr (is_narrow<T>) return round_to<T>(convert<float>(v));
  else if constexpr (__is_same(vec<T>, V)) return v;
  else if constexpr (sizeof(T) == 1 && sizeof(element<V>) > 1)
    return narrow<T>(__builtin_convertvector(v, vec<int32_t>));
  else if constexpr (sizeof(element<V>) == 1 && sizeof(T) > 1)
    return __builtin_convertvector(widen(v), vec<T>);
  else return __builtin_convertvector(v, vec<T>);
}
template <class T> INLINE vec<T> from_bool(mask m) {
  using E = element<vec<T>>;
  return select(m, splat<E>(1), splat<E>(0));
}
template <class V> INLINE mask to_bool(V v) { return as_mask(v != V{}); }

// The first N lanes as they are, the others `other`.
template <int N, class V> INLINE V keep(V v, V other) {
  if constexpr (N >= W) return v;
  else return select(lanes() < N, v, other);
}

template <int N, class T> INLINE vec<T> load_contiguous(const T* p) {
  vec<T> v{};
#if defined(GRAPHC_AVX512)
  if constexpr (N < W && __is_same(T, float))
    return __builtin_ia32_loadups512_mask(p, v, (unsigned short)((1u << N) - 1));
  if constexpr (N < W && __is_same(T, int32_t))
    return (vec<T>)__builtin_ia32_loaddqusi512_mask(p, v, (unsigned short)((1u << N) - 1));
#elif defined(GRAPHC_AVX2)
  if constexpr (N < W && __is_same(T, float))
    return __builtin_ia32_maskloadps256((const vec<float>*)p, lanes() < N);
#endif
  __builtin_memcpy(&v, p, N * sizeof(T));
  return v;
}
template <int N, class T> INLINE void store_contiguous(T* p, vec<T> v) {
#if defined(GRAPHC_AVX512)
  if constexpr (N < W && __is_same(T, float))
    return __builtin_ia32_storeups512_mask(p, v, (unsigned short)((1u << N) - 1));
  if constexpr (N < W && __is_same(T, int32_t))
    return __builtin_ia32_storedqusi512_mask(p, v, (unsigned short)((1u << N) - 1));
#elif defined(GRAPHC_AVX2)
  if constexpr (N < W && __is_same(T, float))
    return __builtin_ia32_maskstoreps256((vec<float>*)p, lanes() < N, v);
#endif
  __builtin_memcpy(p, &v, N * sizeof(T));
}

// Every second element of a from element 0 on, and of b from W - 1 on: it ends with the last one wanted, nothing behind is read.
template <class T, int... L> INLINE vec<T> every_second(vec<T> a, vec<T> b, Lanes<L...>) {
  return __builtin_shufflevector(a, b, (L < W / 2 ? 2 * L : 2 * L + 1)...);
}
template <int N = W, int S = 1, class T> INLINE vec<T> load(const T* p) {
  static_assert(N > 0 && N <= W);
  if constexpr (__is_same(T, bool)) return as_mask(load<N, S>((const uint8_t*)p) != vec<uint8_t>{});
  else if constexpr (S == 0) return splat<T>(*p);
  else if constexpr (is_narrow<T>) return decode<T>(load<N, S>((const uint16_t*)p));
  else if constexpr (S == 1) return load_contiguous<N>(p);
  else if constexpr (S == 2 && __is_same(T, float)) {
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
