// Products of bf16 in pairs: a lane of 32 bits holds two neighbours along a summed axis, the first
// in its lower half. CPUs with AVX512-BF16 add both products of a lane to a float by one
// instruction, rounding after each and treating denormals as zeros; elsewhere two multiply-adds do.
#pragma once
#include "cpu/contract/contract_registers.h"

namespace graphc::contract {
using pairs = vec<uint32_t>;

template <bool PAIRS, class T = float> struct FactorOf {
  using type = vec<T>;
};
template <class T> struct FactorOf<true, T> {
  using type = pairs;
};

INLINE vec<float> lower(pairs v) { return (vec<float>)(v << 16); }
INLINE vec<float> upper(pairs v) { return (vec<float>)(v & 0xffff0000u); }

INLINE void add_pairs(vec<float>& sum, pairs x, pairs y) {
#if defined(__AVX512BF16__) && GRAPHC_LANES == 16
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
#else
  sum = fma(upper(x), upper(y), sum);
  sum = fma(lower(x), lower(y), sum);
#endif
}
template <class V, class X>
INLINE void add_product(V& sum, X x, V y) {
  sum = fma(x, y, sum);
  // Of integers GCC would add up the products of several steps first, which takes registers.
  if constexpr (element<V>(1) / 2 == 0) pin(sum);
}
INLINE void add_product(vec<float>& sum, pairs x, pairs y) { add_pairs(sum, x, y); }

// Bytes four at a time, in the place of two bf16: u8 of one operand, i8 of the other. Sums are exact
// modulo 2^32. CPUs with AVX512-VNNI add the four products of a lane by one instruction.
INLINE void add_bytes(vec<uint32_t>& sum, pairs unsigned_bytes, pairs signed_bytes) {
#if defined(__AVX512VNNI__) && GRAPHC_LANES == 16
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
#else
#pragma GCC unroll 4
  for (int b = 0; b < 32; b += 8)
    sum += (unsigned_bytes >> b & 255) * (pairs)((vec<int32_t>)(signed_bytes << (24 - b)) >> 24);
#endif
}
template <bool BYTES, class V, class X, class Y>
INLINE void add(V& sum, X x, Y y) {
  if constexpr (BYTES) add_bytes(sum, x, y);
  else add_product(sum, x, y);
}

// The first N bf16 of p in the order of memory, zeros behind them.
template <int N>
INLINE pairs load_pairs(const bfloat* p) {
  static_assert(N > 0 && N <= 2 * W);
#if defined(GRAPHC_AVX512) && defined(__AVX512BW__)
  typedef short shorts __attribute__((vector_size(64)));
  if constexpr (N < 2 * W)
    return (pairs)__builtin_ia32_loaddquhi512_mask((const short*)p, shorts{},
                                                   (unsigned)((1ul << N) - 1));
#endif
  pairs v{};
  __builtin_memcpy(&v, p, N * sizeof(bfloat));
  return v;
}

// The bf16 at p and the one NEXT elements behind, in every lane. Of a last one alone (N == 1) the
// other is zero.
template <int N, long NEXT>
INLINE pairs pair(const bfloat* p) {
  uint32_t both;
  if constexpr (N == 1) both = p->bits;
  else if constexpr (NEXT == 1) __builtin_memcpy(&both, p, sizeof both);
  else both = p->bits | uint32_t(p[NEXT].bits) << 16;
  return splat(both);
}

template <int... L> INLINE pairs joined(vec<uint16_t> a, vec<uint16_t> b, Lanes<L...>) {
  typedef uint16_t both __attribute__((vector_size(4 * W)));
  return (pairs)(both)__builtin_shufflevector(a, b, L..., (L + W)...);
}
// Lane l: element l of the first W of v, and of the last W.
template <int... L> INLINE pairs interleave(pairs v, Lanes<L...>) {
#if defined(GRAPHC_AVX512) && defined(__AVX512BW__)
  typedef short shorts __attribute__((vector_size(64)));
  constexpr pairs places = {uint32_t(L | (L + W) << 16)...};
  return (pairs)__builtin_ia32_permvarhi512_mask((shorts)v, (shorts)places, shorts{}, -1u);
#else
  typedef uint16_t both __attribute__((vector_size(4 * W)));
  const both x = (both)v;
  pairs mixed{};
  ((mixed[L] = x[L] | uint32_t(x[L + W]) << 16), ...);
  return mixed;
#endif
}
// LIVE bf16 from p on, and those NEXT elements behind: lane l has the l-th of both.
template <int LIVE, int N, long NEXT>
INLINE pairs interleaved(const bfloat* p) {
  if constexpr (N == 1) return widen(load<LIVE>((const uint16_t*)p));
  else if constexpr (NEXT == W && LIVE == W) return interleave(load_pairs<2 * W>(p), AllLanes{});
  else
    return interleave(
        joined(load<LIVE>((const uint16_t*)p), load<LIVE>((const uint16_t*)p + NEXT), AllLanes{}),
        AllLanes{});
}
// W bf16 of p, then those NEXT elements behind; N of them are live. How they are paired does not
// matter, as their lanes are summed.
template <int N, long NEXT>
INLINE pairs halves(const bfloat* p) {
  if constexpr (NEXT == W || N <= W) return load_pairs<N>(p);
  else return joined(load((const uint16_t*)p), load<N - W>((const uint16_t*)p + NEXT), AllLanes{});
}

// ROWS rows of N bf16 become columns of pairs: rows of `to`, of which the last may lack its second.
template <int ROWS, int N>
SHARED void turn_pairs(const bfloat* from, long from_stride, uint32_t* to, long to_stride) {
  pairs r[W];
#pragma GCC unroll 16
  for (int i = 0; i < W; i++) r[i] = i < ROWS ? load_pairs<N>(from + i * from_stride) : pairs{};
  exchange_rows<1>(r);
#pragma GCC unroll 16
  for (int i = 0; i < W; i++)
    if (2 * i < N) store(to + i * to_stride, r[i]);
}

}  // namespace graphc::contract
