// conv_amx_gradient: weight gradients of bf16 convolutions with channels in the lanes, by AMX's tile
// registers.
//
//   dw[k, c, r, s] = sum over n, p, q of x[n, c, h, w] * dy[n, k, p, q]
//
// x is [n][c / W][h][w][W], dy [n][k / W][p][q][W], dw row-major. Rows and columns of x are numbered
// as in conv_amx.h: u = P_STEP * p + R_STEP * r, v = Q_STEP * q + S_STEP * s.
//
// A register of rows is W channels of dy by 32 pixels, a register of columns 32 pixels of x by W
// channels, so that a register of sums is [W of k][W of c] for one tap. What ROWS rows of IMAGES images
// read of x is gathered into planes, one for each remainder that P_STEP and Q_STEP leave of the taps' u
// and v: there neighbouring pixels are neighbours, a row has WIDTH places, rows follow each other, and a
// tap is an offset. At each place stand its W channels and, in pairs with them, those of the next one. dy
// is gathered in the same order, with zeros between rows, and turned.
//
// Phase 0: a chunk is K_TILE registers of k by C_TILE of c and a part of the images. Over its blocks of
// pixels it adds to all its registers of sums, RM x NV at a time, which wait in the workspace
// [part][k / W][c / W][r][s][W of k][W of c]. Phase 1 adds the parts in ascending order.
//
// Products with padding, and between rows, add zero unless the other factor is infinite or NaN: sums
// that are not finite are made again, by products that exist.
#pragma once
#include "cpu/contract/contract_loops.h"
#include "cpu/contract/contract_pairs.h"
#include "cpu/shared/amx.h"

namespace graphc::tiles {
using contract::First;
using contract::Numbers;
using contract::pairs;

constexpr long common_divisor(long a, long b) { return b == 0 ? a : common_divisor(b, a % b); }

template <class S>
struct Gradient {
  static_assert(W == TILE_ROWS && S::RM <= 2 && S::RM * S::NV <= 4);
  static constexpr long TAPS = S::R * S::T, K_REGISTERS = S::K / W, C_REGISTERS = S::C / W;
  static constexpr long COLUMNS = C_REGISTERS * TAPS;  // registers of sums for W channels of k
  static constexpr long SUMS = W * W, PIXELS = 2 * TILE_ROWS;
  // Remainders are multiples of these.
  static constexpr long ROW_UNIT = common_divisor(S::P_STEP, S::R_STEP);
  static constexpr long COLUMN_UNIT = common_divisor(S::Q_STEP, S::S_STEP);
  static constexpr long ROW_PLANES = S::P_STEP / ROW_UNIT, COLUMN_PLANES = S::Q_STEP / COLUMN_UNIT;
  static constexpr long PLANES = ROW_PLANES * COLUMN_PLANES;
  static constexpr long WIDTH = S::WIDTH, HEIGHT = S::HEIGHT;
  static constexpr long K_GROUPS = (K_REGISTERS + S::K_TILE - 1) / S::K_TILE;
  static constexpr long C_GROUPS = (C_REGISTERS + S::C_TILE - 1) / S::C_TILE;
  struct alignas(64) Gathered {
    uint32_t x[S::C_TILE][S::IMAGES][PLANES][S::ROOM][W];
    uint32_t dy[S::IMAGES][S::STEPS][S::K_TILE][TILE_ROWS][W];
  };
  static constexpr long IMAGE = PLANES * S::ROOM * W;  // of x, in elements of 32 bits

  static bool inside(long u, long v) {
    return u >= S::ROW_LOW && u < S::ROW_HIGH && v >= S::COLUMN_LOW && v < S::COLUMN_HIGH;
  }
  static vec<uint16_t> at(const bfloat* p) { return load((const uint16_t*)p); }
  static pairs paired(vec<uint16_t> a, vec<uint16_t> b) {
    return contract::interleave(contract::joined(a, b, AllLanes{}), AllLanes{});
  }

  // W channels of an image's rows from row p on.
  static __attribute__((noinline)) void gather_x(const bfloat* x, long p,
                                                 uint32_t (&to)[PLANES][S::ROOM][W]) {
    for (long plane = 0; plane < PLANES; plane++) {
      const long u0 = S::P_STEP * p + plane / COLUMN_PLANES * ROW_UNIT;
      const long v0 = plane % COLUMN_PLANES * COLUMN_UNIT;
      vec<uint16_t> before{};
      long i = 0, j = 0;
      for (long place = 0; place <= S::ROOM; place++) {
        const long u = u0 + S::P_STEP * i, v = v0 + S::Q_STEP * j;
        vec<uint16_t> here{};
        if (i < HEIGHT && inside(u, v)) here = at(x + u * S::ROW + v * S::COLUMN);
        if (place > 0) store(to[plane][place - 1], paired(before, here));
        before = here;
        if (++j == WIDTH) j = 0, i++;
      }
    }
  }
  // W channels of rows [p, last) of dy as PIXELS pixels of each channel, K_TILE registers apart.
  static __attribute__((noinline)) void gather_dy(const bfloat* dy, long p, long last, long steps,
                                                  uint32_t (*to)[S::K_TILE][TILE_ROWS][W]) {
    long i = p, j = 0;
    const auto next = [&] {
      vec<uint16_t> here{};
      if (i < last && j < S::Q) here = at(dy + i * S::Y_P + j * S::Y_Q);
      if (++j == WIDTH) j = 0, i++;
      return here;
    };
    for (long step = 0; step < steps; step++) {
      pairs r[W];
      for (int t = 0; t < TILE_ROWS; t++) {
        const vec<uint16_t> first = next(), second = next();
        r[t] = paired(first, second);
      }
      exchange_rows<1>(r);
      for (int k = 0; k < TILE_ROWS; k++) store(to[step][0][k], r[k]);
    }
  }

  template <int V, int... I>
  static INLINE void begin(TileRegisters& tiles, const float* sums, bool first, Numbers<I...>) {
    if (first) (tiles.zero<I>(), ...);
    else (tiles.load<I>(sums + (I / V * COLUMNS + I % V) * SUMS, TILE_BYTES), ...);
  }
  template <int V, int... I>
  static INLINE void end(const TileRegisters& tiles, float* sums, Numbers<I...>) {
    (tiles.store<I>(sums + (I / V * COLUMNS + I % V) * SUMS, TILE_BYTES), ...);
  }
  template <int M>
  static INLINE void load_rows(TileRegisters& tiles, const uint32_t* a) {
    tiles.load<4 + M>(a + M * TILE_ROWS * W, TILE_BYTES);
  }
  template <int V, int J, int... M>
  static INLINE void column(TileRegisters& tiles, const uint32_t* b, Numbers<M...>) {
    tiles.load<6 + J % 2>(b, 2 * TILE_BYTES);
    (tiles.multiply<M * V + J, 4 + M, 6 + J % 2>(), ...);
  }
  template <int V, int... M, int... J>
  static INLINE void step(TileRegisters& tiles, const uint32_t* a, const uint32_t* const (&b)[V],
                          long offset, Numbers<M...> rows, Numbers<J...>) {
    (load_rows<M>(tiles, a), ...);
    (column<V, J>(tiles, b[J] + offset, rows), ...);
  }
  // The pixels of a block for M registers of k by V of columns.
  template <int M, int V>
  static __attribute__((noinline)) void add(TileRegisters& tiles, const Gathered& block, long k,
                                            const uint32_t* const (&b)[V], long count, long steps,
                                            float* sums, bool first) {
    begin<V>(tiles, sums, first, First<M * V>{});
    for (long n = 0; n < count; n++)
      for (long i = 0; i < steps; i++)
        step(tiles, block.dy[n][i][k][0], b, n * IMAGE + i * PIXELS * W, First<M>{}, First<V>{});
    end<V>(tiles, sums, First<M * V>{});
  }
  // What column e of the chunk reads: a register of c at a tap.
  static const uint32_t* place(const Gathered& block, long e) {
    const long u = e % TAPS / S::T * S::R_STEP, v = e % S::T * S::S_STEP;
    const long row = u % S::P_STEP / ROW_UNIT, column = v % S::Q_STEP / COLUMN_UNIT;
    return block
        .x[e / TAPS][0][row * COLUMN_PLANES + column][u / S::P_STEP * WIDTH + v / S::Q_STEP];
  }
  template <int M, int V>
  static void columns(TileRegisters& tiles, const Gathered& block, long k, long& e, long last,
                      long count, long steps, float* sums, bool first) {
    for (; e + V <= last; e += V) {
      const uint32_t* b[V];
      for (int j = 0; j < V; j++) b[j] = place(block, e + j);
      add<M, V>(tiles, block, k, b, count, steps, sums + e * SUMS, first);
    }
  }
  template <int M>
  static void rows(TileRegisters& tiles, const Gathered& block, long k, long last, long count,
                   long steps, float* sums, bool first) {
    long e = 0;
    columns<M, S::NV>(tiles, block, k, e, last, count, steps, sums, first);
    if constexpr (S::NV > 1) columns<M, 1>(tiles, block, k, e, last, count, steps, sums, first);
  }

  static void run(const bfloat* x, const bfloat* dy, float* workspace, long chunk) {
    const long part = chunk / (K_GROUPS * C_GROUPS);
    const long k0 = chunk / C_GROUPS % K_GROUPS * S::K_TILE, c0 = chunk % C_GROUPS * S::C_TILE;
    const long k1 = least(k0 + S::K_TILE, K_REGISTERS), c1 = least(c0 + S::C_TILE, C_REGISTERS);
    const long n0 = part * S::N / S::PARTS, n1 = (part + 1) * S::N / S::PARTS;
    float* const own = workspace + (part * K_REGISTERS * COLUMNS + c0 * TAPS) * SUMS;
    TileRegisters tiles;
    Gathered block;
    for (long n = n0; n < n1; n += S::IMAGES)
      for (long p = 0; p < S::P; p += S::ROWS) {
        const long count = least(S::IMAGES, n1 - n), last = least(p + S::ROWS, S::P);
        const long steps = ((last - p - 1) * WIDTH + S::Q + PIXELS - 1) / PIXELS;
        for (long i = 0; i < count; i++) {
          for (long c = c0; c < c1; c++)
            gather_x(x + S::X_0 + (n + i) * S::X_N + c * S::X_B, p, block.x[c - c0][i]);
          for (long k = k0; k < k1; k++)
            gather_dy(dy + S::Y_0 + (n + i) * S::Y_N + k * S::Y_K, p, last, steps,
                      (uint32_t (*)[S::K_TILE][TILE_ROWS][W])block.dy[i][0][k - k0]);
        }
        long k = k0;
        const bool first = n == n0 && p == 0;
        const long ends = (c1 - c0) * TAPS;
        for (; k + S::RM <= k1; k += S::RM)
          rows<S::RM>(tiles, block, k - k0, ends, count, steps, own + k * COLUMNS * SUMS, first);
        if constexpr (S::RM > 1)
          for (; k < k1; k++)
            rows<1>(tiles, block, k - k0, ends, count, steps, own + k * COLUMNS * SUMS, first);
      }
  }

  // The gradients of W channels of c for one of k at a tap, of the products that exist.
  static __attribute__((noinline)) vec<float> exact(const bfloat* x, const bfloat* dy, long k,
                                                    long c, long tap) {
    vec<float> sum{};
    for (long n = 0; n < S::N; n++)
      for (long p = 0; p < S::P; p++)
        for (long q = 0; q < S::Q; q++) {
          const long u = S::P_STEP * p + tap / S::T * S::R_STEP;
          const long v = S::Q_STEP * q + tap % S::T * S::S_STEP;
          if (!inside(u, v)) continue;
          const bfloat* from = x + S::X_0 + n * S::X_N + c * S::X_B + u * S::ROW + v * S::COLUMN;
          const bfloat* with = dy + S::Y_0 + n * S::Y_N + k / W * S::Y_K + p * S::Y_P + q * S::Y_Q;
          sum = fma(splat(value(with[k % W])), decode<bfloat>(at(from)), sum);
        }
    return sum;
  }
  // Units [begin, end): registers of k by registers of c.
  static void finish(const bfloat* x, const bfloat* dy, const float* workspace, float* dw,
                     long begin, long end) {
    constexpr long part = K_REGISTERS * COLUMNS * SUMS;
    for (long unit = begin; unit < end; unit++)
      for (long tap = 0; tap < TAPS; tap++)
        for (long i = 0; i < W; i++) {
          const float* from = workspace + (unit * TAPS + tap) * SUMS + i * W;
          vec<float> sum = load(from);
          for (long p = 1; p < S::PARTS; p++) sum += load(from + p * part);
          const long k = unit / C_REGISTERS * W + i, c = unit % C_REGISTERS;
          const mask broken = sum - sum != 0;
          if (any(broken)) sum = select(broken, exact(x, dy, k, c, tap), sum);
          store<W, TAPS>(dw + (k * S::C + c * W) * TAPS + tap, sum);
        }
  }
};

}  // namespace graphc::tiles
