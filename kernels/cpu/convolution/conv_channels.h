// conv_channels: convolutions and their data gradients with channels in the lanes.
//
//   y[n, k, p, q] = epilogue(sum over c, r, s of x[n, c, h, w] * weight[k, c, r, s])
//
// x is [n][c / W][h][w][W] or, with few channels, row-major; y has its k in lanes; the weight lies in
// lanes of k, so that one vector of it meets one broadcast element of x. A generated Shape says the
// rest in constants: x(n, c, p, q, r, s) and weight(k, c, r, s) are sums of strides, h and w affine
// functions of p, r and of q, s. The data gradient is the same nest: its k is summed, its c in lanes.
//
// A tile is IMAGES images x so many columns q of one row p, by so many vectors of k: its sums stay in
// registers over all c, r, s. Products with padding are never computed: columns outside of the image
// are left out of the text of a tile (Shape::column_inside), rows are skipped (Shape::row_inside).
//
// Each sum takes its products in the order of c, r, s.
//
// With PAIRS x and the weight are bf16, and a step is two neighbouring channels at once
// (contract_pairs.h), of which the last may be alone.
//
// A unit is a block of PER_BLOCK tiles of pixels with one tile of k; chunks are ranges of units. With
// WEIGHTS_FIRST the blocks of a tile of k follow each other, so that a large weight passes by once;
// else its tiles of k for a block, whose part of x then stays in the second-level cache.
#pragma once
#include "cpu/contract/contract_loops.h"
#include "cpu/contract/contract_pairs.h"

namespace graphc::channels {
using contract::Cut;
using contract::First;
using contract::Numbers;

// What a later step loads again must not be held until then: the sums need the registers.
INLINE void forget() { asm volatile("" ::: "memory"); }

// Tile number `at` of an axis in `CUTS`: the size of its cut and where it begins are arguments.
template <const auto& CUTS, int I, class Then>
INLINE void choose(long at, const Then& then) {
  constexpr Cut cut = CUTS[I];
  if constexpr (I + 1 < sizeof CUTS / sizeof(Cut)) {
    if (at >= cut.tiles) {
      choose<CUTS, I + 1>(at - cut.tiles, then);
      return;
    }
  }
  then.template operator()<cut>(cut.start + at * cut.size);
}

// What a step multiplies: of one channel (or pixel), or of N that are a pair, NEXT elements apart.
template <class S>
using Factor = typename contract::FactorOf<S::PAIRS>::type;
template <class S, int N, long NEXT>
INLINE Factor<S> lanes_at(const typename S::X* p) {
  if constexpr (S::PAIRS) return contract::interleaved<W, N, NEXT>(p);
  else return load(p);
}
template <class S, int N, long NEXT>
INLINE Factor<S> element_at(const typename S::X* p) {
  if constexpr (S::PAIRS) return contract::pair<N, NEXT>(p);
  else return splat(*p);
}

template <class S, Cut COLUMNS, int NV>
struct Tile {
  using X = typename S::X;
  static constexpr int TW = COLUMNS.size, MR = S::IMAGES * TW;
  struct Sums {
    vec<float> at[MR][NV];
  };
  static constexpr long row(int i) { return i / TW * S::X_N + i % TW * S::X_Q; }
  static constexpr bool live(int i, int s) { return S::column_inside(COLUMNS.start + i % TW, s); }
  static constexpr bool any(int s) {
    for (int i = 0; i < TW; i++)
      if (live(i, s)) return true;
    return false;
  }
  // One channel of x, or N: at each tap NV vectors of the weight meet MR pixels.
  template <int N>
  static INLINE void step(Sums& sums, const X* x, const X* w) {
#pragma GCC unroll 64
    for (int s = 0; s < S::TAPS; s++) {
      if (!any(s)) continue;
      Factor<S> v[NV];
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++) {
        v[j] = lanes_at<S, N, S::W_C>(w + s * S::W_S + j * S::W_K);
        pin(v[j]);
      }
#pragma GCC unroll 32
      for (int i = 0; i < MR; i++) {
        if (!live(i, s)) continue;
        if constexpr (NV == 1 && !S::PAIRS) {
          sums.at[i][0] = fma(splat(x[s * S::X_S + row(i)]), v[0], sums.at[i][0]);
        } else {
          Factor<S> one = element_at<S, N, S::X_C>(x + s * S::X_S + row(i));
          pin(one);
#pragma GCC unroll 8
          for (int j = 0; j < NV; j++) contract::add_product(sums.at[i][j], one, v[j]);
        }
      }
      forget();
    }
  }
  template <class E>
  static INLINE void finish_pixel(const Sums& sums, int i, long n, long k, long p, long q,
                                  const E& epilogue) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; j++)
      epilogue.template operator()<W>(sums.at[i][j], n + i / TW, k + j * W, p, q + i % TW);
  }
  template <class E>
  static INLINE void finish(const Sums& sums, long n, long k, long p, long q, const E& epilogue) {
    if constexpr (E::LONG) {  // one text for all pixels, so their sums leave the registers
      Sums kept;
#pragma GCC unroll 32
      for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++) kept.at[i][j] = sums.at[i][j];
#pragma GCC unroll 1
      for (int i = 0; i < MR; i++) finish_pixel(kept, i, n, k, p, q, epilogue);
    } else {
#pragma GCC unroll 32
      for (int i = 0; i < MR; i++) finish_pixel(sums, i, n, k, p, q, epilogue);
    }
  }
  template <class E>
  static __attribute__((noinline)) void run(const X* x, const X* w, long n, long k, long p, long q,
                                            const E& epilogue) {
    constexpr long together = S::PAIRS ? 2 : 1, rest = S::BLOCK_OF_C % together;
    Sums sums;
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++) sums.at[i][j] = vec<float>{};
    x += S::X_0 + n * S::X_N + p * S::X_P + q * S::X_Q;
    w += S::W_0 + k / W * S::W_K;
    long r0 = 0, r1 = S::ROWS_OF_TAPS;
    while (r0 < r1 && !S::row_inside(p, r0)) r0++;
    while (r0 < r1 && !S::row_inside(p, r1 - 1)) r1--;
    const auto channel = [&]<int N>(const X* x, const X* w) __attribute__((always_inline)) {
#pragma GCC unroll 1
      for (long r = r0; r < r1; r++) step<N>(sums, x + r * S::X_R, w + r * S::W_R);
    };
#pragma GCC unroll 1
    for (long b = 0; b < S::BLOCKS_OF_C; b++) {
      const X* from = x + b * S::X_B;
      const X* weight = w + b * S::BLOCK_OF_C * S::W_C;
#pragma GCC unroll 1
      for (long c = 0; c < S::BLOCK_OF_C - rest; c += S::UNROLL * together)
#pragma GCC unroll 16
        for (int u = 0; u < S::UNROLL * together; u += together)
          channel.template operator()<together>(from + (c + u) * S::X_C, weight + (c + u) * S::W_C);
      if constexpr (rest != 0)
        channel.template operator()<1>(from + (S::BLOCK_OF_C - 1) * S::X_C,
                                       weight + (S::BLOCK_OF_C - 1) * S::W_C);
    }
    finish(sums, n, k, p, q, epilogue);
  }
};

template <class S, class E>
INLINE void run(const typename S::X* x, const typename S::X* w, int chunk, const E& epilogue) {
  constexpr long tiles = S::N / S::IMAGES * S::P * S::COLUMN_TILES;
  constexpr long blocks = (tiles + S::PER_BLOCK - 1) / S::PER_BLOCK, units = blocks * S::K_TILES;
  const long end = (chunk + 1) * units / S::CHUNKS;
  for (long u = chunk * units / S::CHUNKS; u < end; u++) {
    const long block = S::WEIGHTS_FIRST ? u % blocks : u / S::K_TILES;
    const long vectors = S::WEIGHTS_FIRST ? u / blocks : u % S::K_TILES;
    const long last = least((block + 1) * S::PER_BLOCK, tiles);
    choose<S::vectors, 0>(vectors, [&]<Cut K>(long k) __attribute__((always_inline)) {
      for (long t = block * S::PER_BLOCK; t < last; t++) {
        const long p = t / S::COLUMN_TILES % S::P, n = t / S::COLUMN_TILES / S::P * S::IMAGES;
        choose<S::columns, 0>(t % S::COLUMN_TILES,
                              [&]<Cut C>(long q) __attribute__((always_inline)) {
                                Tile<S, C, K.size>::run(x, w, n, k * W, p, q, epilogue);
                              });
      }
    });
  }
}

}  // namespace graphc::channels
