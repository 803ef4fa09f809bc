// conv_channels_gradient: weight gradients of convolutions with channels in the lanes.
//
//   dw[k, c, r, s] = sum over n, p, q of x[n, c, h, w] * dy[n, k, p, q]
//
// dy is [n][k / W][p][q][W], x likewise or, with few channels, row-major; dw is row-major. A tile is
// CHANNELS channels of x at all taps s of one row r, by so many vectors of k: at each pixel a vector of
// dy meets broadcast elements of x. Products with padding are never computed: the first and last
// columns of a row, where taps fall outside, are unrolled and leave them out (Shape::column_inside);
// rows are clipped (Shape::row_inside). With PAIRS x and dy are bf16, and a step between those columns
// is two neighbouring pixels at once (contract_pairs.h), of which the last may be alone.
//
// Phase 0: a chunk is a tile of k, a group of channels and a part of the images. It walks over blocks of
// pixels, whose x and dy stay in the first-level cache while all its tiles pass over them; their sums
// wait in the workspace [part][k / W][c][r][s][W]. Phase 1 adds the parts in ascending order and turns
// W x W blocks to rows of dw.
#pragma once
#include "cpu/conv_channels.h"

namespace graphc::channels {

template <class S, int NV>
struct GradientTile {
  static constexpr int MR = S::CHANNELS * S::TAPS;
  using X = typename S::X;
  struct Sums {
    vec<float> at[MR][NV];
  };
  static constexpr long row(int i) { return i / S::TAPS * S::X_C + i % S::TAPS * S::X_S; }
  static constexpr long place(int i) {
    return (i / S::TAPS * long(S::ROWS_OF_TAPS) * S::TAPS + i % S::TAPS) * W;
  }
  template <int N, bool INSIDE, int Q, int I, int... J>
  static INLINE void element(Sums& sums, const X* x, const Factor<S> (&v)[NV], Numbers<J...>) {
    if constexpr (INSIDE || S::column_inside(Q, I % S::TAPS)) {
      if constexpr (NV == 1 && !S::PAIRS) {
        sums.at[I][0] += x[row(I)] * v[0];
      } else {
        Factor<S> one = element_at<S, N, S::X_Q>(x + row(I));
        pin(one);
        (contract::add_product(sums.at[I][J], one, v[J]), ...);
      }
    }
  }
  // One pixel, or N.
  template <int N, bool INSIDE, int Q, int... I>
  static INLINE void pixel(Sums& sums, const X* x, const X* dy, Numbers<I...>) {
    Factor<S> v[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; j++) {
      v[j] = lanes_at<S, N, S::Y_Q>(dy + j * S::Y_K);
      pin(v[j]);
    }
    (element<N, INSIDE, Q, I>(sums, x, v, First<NV>{}), ...);
    forget();
  }
  template <int FROM, int... Q>
  static INLINE void edge(Sums& sums, const X* x, const X* dy, Numbers<Q...>) {
    (pixel<1, false, FROM + Q>(sums, x + (FROM + Q) * S::X_Q, dy + (FROM + Q) * S::Y_Q,
                               First<MR>{}),
     ...);
  }
  // Rows [p0, p1) of images [n0, n1); the sums begin at zero or go on from what waits at `sums_at`.
  static __attribute__((noinline)) void run(const X* x, const X* dy, float* sums_at, long n0,
                                            long n1, long p0, long p1, bool begin) {
    constexpr long together = S::PAIRS ? 2 : 1, rest = (S::MAIN - S::HEAD) % together;
    Sums sums;
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++)
        sums.at[i][j] = begin ? vec<float>{} : load(sums_at + place(i) + j * S::SUMS_K);
#pragma GCC unroll 1
    for (long n = n0; n < n1; n++)
#pragma GCC unroll 1
      for (long p = p0; p < p1; p++) {
        const X* from = x + n * S::X_N + p * S::X_P;
        const X* with = dy + n * S::Y_N + p * S::Y_P;
        edge<0>(sums, from, with, First<S::HEAD>{});
#pragma GCC unroll 1
        for (long q = S::HEAD; q < S::MAIN - rest; q += together)
          pixel<together, true, 0>(sums, from + q * S::X_Q, with + q * S::Y_Q, First<MR>{});
        if constexpr (rest != 0)
          pixel<1, true, 0>(sums, from + (S::MAIN - 1) * S::X_Q, with + (S::MAIN - 1) * S::Y_Q,
                            First<MR>{});
        edge<S::MAIN>(sums, from, with, First<S::Q - S::MAIN>{});
      }
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++) store(sums_at + place(i) + j * S::SUMS_K, sums.at[i][j]);
  }
};

template <class S>
INLINE long channel(long c) {
  return S::BLOCK_OF_C == 1 ? c * S::X_C : c / S::BLOCK_OF_C * S::X_B + c % S::BLOCK_OF_C;
}

template <class S>
INLINE void add_products(const typename S::X* x, const typename S::X* dy, int chunk,
                         float* workspace) {
  const long part = chunk / (S::K_TILES * S::GROUPS), group = chunk % S::GROUPS;
  const long n0 = part * S::N / S::PARTS, n1 = (part + 1) * S::N / S::PARTS;
  constexpr long tiles = S::C / S::CHANNELS, taps = S::ROWS_OF_TAPS * S::TAPS;
  const long c0 = group * tiles / S::GROUPS * S::CHANNELS;
  const long c1 = (group + 1) * tiles / S::GROUPS * S::CHANNELS;
  float* const own = workspace + part * S::SIZE;
  choose<S::vectors, 0>(
      chunk / S::GROUPS % S::K_TILES, [&]<Cut K>(long k) __attribute__((always_inline)) {
        for (long n = n0; n < n1; n += S::BLOCK_OF_N)
          for (long p = 0; p < S::P; p += S::BLOCK_OF_P)
            for (long c = c0; c < c1; c += S::CHANNELS)
              for (long r = 0; r < S::ROWS_OF_TAPS; r++) {
                long first = p, last = least(p + S::BLOCK_OF_P, long(S::P));
                while (first < last && !S::row_inside(first, r)) first++;
                while (first < last && !S::row_inside(last - 1, r)) last--;
                GradientTile<S, K.size>::run(
                    x + S::X_0 + channel<S>(c) + r * S::X_R, dy + S::Y_0 + k * S::Y_K,
                    own + k * S::SUMS_K + (c * taps + r * S::TAPS) * W, n,
                    least(n + S::BLOCK_OF_N, n1), first, last, n == n0 && p == 0);
              }
      });
}

// N columns of W rows of dw, which are `row` elements long, from `parts` sums that lie `size` apart.
template <int N>
SHARED void add_and_turn(const float* sums, int parts, long size, float* dw, long row) {
  float added[W * W];
  for (int i = 0; i < N; i++) {
    vec<float> v = load(sums + i * W);
    for (int part = 1; part < parts; part++) v += load(sums + i * W + part * size);
    store(added + i * W, v);
  }
  transpose_rest<W, N>(added, dw, row);
}
template <class S>
INLINE void finish(const float* workspace, int chunk, float* dw) {
  constexpr long row = S::SUMS_K / W, blocks = (row + W - 1) / W,
                 units = S::SIZE / S::SUMS_K * blocks;
  const long end = (chunk + 1) * units / S::FINISH_CHUNKS;
  for (long u = chunk * units / S::FINISH_CHUNKS; u < end; u++) {
    const long k = u / blocks, e = u % blocks * W;
    const float* const from = workspace + k * S::SUMS_K + e * W;
    float* const to = dw + k * W * row + e;
    if constexpr (row % W != 0)
      if (e + W > row) {
        add_and_turn<row % W>(from, S::PARTS, S::SIZE, to, row);
        continue;
      }
    if constexpr (row >= W) add_and_turn<W>(from, S::PARTS, S::SIZE, to, row);
  }
}

}  // namespace graphc::channels
