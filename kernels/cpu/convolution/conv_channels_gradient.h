// conv_channels_gradient: weight gradients of convolutions with channels in the lanes.
//
//   dw[k, c, r, s] = sum over n, p, q of x[n, c, h, w] * dy[n, k, p, q]
//
// dy is [n][k / W][p][q][W], x likewise or, with few channels, row-major; dw is row-major. A tile is
// CHANNELS channels of x at all taps s of one row r, by so many vectors of k: at each pixel a vector of
// dy meets broadcast elements of x. Products with padding are never computed: the first and last
// columns of a row, where taps fall outside, are unrolled and leave them out (Shape::column_inside);
// rows are clipped (Shape::row_inside).
//
// With PAIRS x and dy are bf16. With IMAGES == 2 a step is the same pixel of two images: what the tiles
// of a block read is first joined to pairs in a buffer (Joined), where X_N, Y_N and Y_K are steps of
// its own. Else a step between those columns is two neighbouring pixels, of which the last may be alone
// (contract_pairs.h).
//
// Phase 0: a chunk is a tile of k, a group of channels and a part of the images. It walks over blocks of
// pixels, whose x and dy stay in the first-level cache while all its tiles pass over them; their sums
// wait in the workspace [part][k / W][c][r][s][W]. A block is either several whole images or some rows
// of one, so that each sum takes its products image by image and row by row. Phase 1 adds the parts in ascending order and turns
// W x W blocks to rows of dw.
#pragma once
#include "cpu/convolution/conv_channels.h"

namespace graphc::channels {

template <class S>
INLINE long channel(long c) {
  return S::BLOCK_OF_C == 1 ? c * S::X_C : c / S::BLOCK_OF_C * S::X_B + c % S::BLOCK_OF_C;
}

// Where the tiles of a block of pixels read: rows [p, last) of `count` images, or pairs of them, from
// image n on. Here in memory.
template <class S>
struct Joined {
  using X = typename S::X;
  template <int NV>
  INLINE const X* of_dy(const X* dy, long n, long, long k, long, long) {
    return dy + S::Y_0 + n * S::Y_N + k * S::Y_K;
  }
  INLINE const X* of_x(const X* x, long n, long, long c, long, long, bool) {
    return x + S::X_0 + n * S::X_N + channel<S>(c);
  }
};
// In the buffers.
template <class S>
  requires(S::IMAGES == 2)
struct Joined<S> {
  using X = uint32_t;
  alignas(64) X x[S::X_ROOM], dy[S::Y_ROOM];
  long begin = 0;  // of what is in `x`, from the start of its channels

  // Elements [begin, end) of two images, NEXT apart.
  template <long NEXT>
  static __attribute__((noinline)) void join(const bfloat* from, long begin, long end, X* to) {
    for (long i = begin; i < end; i += W)
      store(to + i - begin, contract::interleaved<W, 2, NEXT>(from + i));
  }
  template <int NV>
  const X* of_dy(const bfloat* from, long n, long count, long k, long p, long last) {
    from += S::Y_0 + n * S::DY_IMAGE + k * S::DY_K;
    const long end = (last - 1) * S::Y_P + (S::Q - 1) * S::Y_Q + W;
    for (long i = 0; i < count; i++)
      for (int j = 0; j < NV; j++)
        join<S::DY_IMAGE>(from + 2 * i * S::DY_IMAGE + j * S::DY_K, p * S::Y_P, end,
                          dy + i * S::Y_N + j * S::Y_K);
    return dy - p * S::Y_P;
  }
  // All channels of a block at once, as much of them as any tap reads, for its first tile.
  const X* of_x(const bfloat* from, long n, long count, long c, long p, long last, bool first) {
    const long own = c % S::BLOCK_OF_C;
    if (first || own == 0) {
      constexpr long taps = (S::ROWS_OF_TAPS - 1) * S::X_R + (S::TAPS - 1) * S::X_S;
      from += n * S::X_IMAGE + channel<S>(c - own);
      begin = most(0, S::X_0 + p * S::X_P);
      const long end = least(S::X_B, S::X_0 + (last - 1) * S::X_P + (S::Q - 1) * S::X_Q + taps + W);
      for (long i = 0; i < count; i++)
        join<S::X_IMAGE>(from + 2 * i * S::X_IMAGE, begin, end, x + i * S::X_N);
    }
    return x + S::X_0 - begin + own;
  }
};

template <class S, int NV>
struct HaloGradientTile {
  static constexpr int MR = S::CHANNELS * S::TAPS;
  using X = typename Joined<S>::X;
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
        sums.at[I][0] = fma(splat(x[row(I)]), v[0], sums.at[I][0]);
      } else {
        Factor<S> one = [&]() __attribute__((always_inline)) {
          if constexpr (S::IMAGES == 2) return splat(x[row(I)]);
          else return element_at<S, N, S::X_Q>(x + row(I));
        }();
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
      if constexpr (S::IMAGES == 2) v[j] = load(dy + j * S::Y_K);
      else v[j] = lanes_at<S, N, S::Y_Q>(dy + j * S::Y_K);
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
  // Rows [p0, p1) of `count` images, or pairs of them; the sums begin at zero or go on from what waits at `sums_at`.
  static __attribute__((noinline)) void run(const X* x, const X* dy, float* sums_at, long count,
                                            long p0, long p1, bool begin) {
    constexpr long together = S::PAIRS && S::IMAGES == 1 ? 2 : 1,
                   rest = (S::MAIN - S::HEAD) % together;
    Sums sums;
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++)
        sums.at[i][j] = begin ? vec<float>{} : load(sums_at + place(i) + j * S::SUMS_K);
#pragma GCC unroll 1
    for (long n = 0; n < count; n++)
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
INLINE void add_products(const typename S::X* x, const typename S::X* dy, int chunk,
                         float* workspace) {
  const long part = chunk / (S::K_TILES * S::GROUPS), group = chunk % S::GROUPS;
  const long n0 = part * S::N / S::PARTS, n1 = (part + 1) * S::N / S::PARTS;
  constexpr long tiles = S::C / S::CHANNELS, taps = S::ROWS_OF_TAPS * S::TAPS;
  const long c0 = group * tiles / S::GROUPS * S::CHANNELS;
  const long c1 = (group + 1) * tiles / S::GROUPS * S::CHANNELS;
  float* const own = workspace + part * S::SIZE;
  Joined<S> joined;
  choose<S::vectors, 0>(
      chunk / S::GROUPS % S::K_TILES, [&]<Cut K>(long k) __attribute__((always_inline)) {
        for (long n = n0; n < n1; n += S::BLOCK_OF_N)
          for (long p = 0; p < S::P; p += S::BLOCK_OF_P) {
            const long count = (least(n + S::BLOCK_OF_N, n1) - n) / S::IMAGES;
            const long end = least(p + S::BLOCK_OF_P, long(S::P));
            const auto* with = joined.template of_dy<K.size>(dy, n, count, k, p, end);
            for (long c = c0; c < c1; c += S::CHANNELS) {
              const auto* from = joined.of_x(x, n, count, c, p, end, c == c0);
              for (long r = 0; r < S::ROWS_OF_TAPS; r++) {
                long first = p, last = end;
                while (first < last && !S::row_inside(first, r)) first++;
                while (first < last && !S::row_inside(last - 1, r)) last--;
                HaloGradientTile<S, K.size>::run(from + r * S::X_R, with,
                                                 own + k * S::SUMS_K + (c * taps + r * S::TAPS) * W,
                                                 count, first, last, n == n0 && p == 0);
              }
            }
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
