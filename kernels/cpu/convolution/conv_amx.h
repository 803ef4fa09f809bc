// conv_amx: convolutions and their data gradients of bf16 with channels in the lanes, by AMX's tile
// registers.
//
//   y[n, k, p, q] = epilogue(sum over c, r, s of x[n, c, h, w] * weight[k, c, r, s])
//
// x is [n][c / W][h][w][W], y has its k in lanes, as in conv_channels.h. Rows are numbered by
// u = P_STEP * p + R_STEP * r, columns by v = Q_STEP * q + S_STEP * s; those in [ROW_LOW, ROW_HIGH)
// and [COLUMN_LOW, COLUMN_HIGH) are in memory, ROW and COLUMN elements apart.
//
// Phase 0 writes the weight as registers of 32 channels by W output channels, in pairs:
// [k / W][c / 32][r][s][16][W][2]. A unit of phase 1 is TILE_P x TILE_Q pixels by a group of output
// channels: what its pixels read is gathered into a patch, 32 channels of a pixel together and zeros
// in the padding. A register of rows is 16 pixels in a row of the patch, whose rows follow each other:
// a tap is an offset, and what it computes between two rows of pixels is not used. RM such registers
// meet NV of the weight; their sums stay in registers over all channels and taps.
//
// Products with padding add zero, unless the weight is infinite or NaN: a sum at the border that is
// not finite is made again, by products that exist.
#pragma once
#include "cpu/contract/contract_loops.h"
#include "cpu/contract/contract_pairs.h"
#include "cpu/shared/amx.h"

namespace graphc::tiles {
using contract::First;
using contract::Numbers;
using contract::pairs;

constexpr long REGISTER = TILE_ROWS * TILE_BYTES / 4;  // elements of 32 bits

template <class S>
struct Convolution {
  static_assert(W == TILE_ROWS && S::RM * S::NV <= 4 && (S::RM <= 2 || S::NV == 1));
  static constexpr long BLOCKS = (S::C + 2 * W - 1) / (2 * W), TAPS = S::R * S::T;
  static constexpr long VECTORS = S::K / W, K_TILES = (VECTORS + S::NV - 1) / S::NV;
  static constexpr long P_TILES = (S::P + S::TILE_P - 1) / S::TILE_P;
  static constexpr long Q_TILES = (S::Q + S::TILE_Q - 1) / S::TILE_Q;
  static constexpr long TILES = S::N * P_TILES * Q_TILES;
  // The patch: its first row and column, and their numbers.
  static constexpr long FIRST_ROW = least(0L, long(S::R_STEP) * (S::R - 1));
  static constexpr long FIRST_COLUMN = least(0L, long(S::S_STEP) * (S::T - 1));
  static constexpr long HEIGHT = S::PATCH_ROWS, WIDTH = S::PATCH_COLUMNS;
  struct alignas(64) Patch {
    uint32_t at[BLOCKS][S::PATCH_ROOM][W];
  };
  struct Pixel {
    long n, p, q;
  };

  static bool inside(long u, long v) {
    return u >= S::ROW_LOW && u < S::ROW_HIGH && v >= S::COLUMN_LOW && v < S::COLUMN_HIGH;
  }
  static const bfloat* place(const bfloat* x, long n, long block, long u, long v) {
    return x + S::X_0 + n * S::X_N + 2 * block * S::X_B + u * S::ROW + v * S::COLUMN;
  }

  // Registers [begin, end) of the weight.
  static void pack_weight(const bfloat* w, uint32_t* to, long begin, long end) {
    for (long i = begin; i < end; i++) {
      const long s = i % S::T, r = i / S::T % S::R, b = i / TAPS % BLOCKS, k = i / TAPS / BLOCKS;
      const bfloat* from = w + S::W_0 + k * S::W_K + r * S::W_R + s * S::W_S;
      for (long t = 0; t < TILE_ROWS; t++) {
        const long c = 2 * (b * TILE_ROWS + t);
        pairs v{};
        if (c < S::C) v = contract::interleaved<W, 2, S::W_C>(from + c * S::W_C);
        store(to + i * REGISTER + t * W, v);
      }
    }
  }

  static __attribute__((noinline)) void gather(const bfloat* x, Pixel at, Patch& patch) {
    for (long b = 0; b < BLOCKS; b++)
      for (long i = 0; i < HEIGHT; i++)
        for (long j = 0; j < WIDTH; j++) {
          const long u = at.p * S::P_STEP + FIRST_ROW + i, v = at.q * S::Q_STEP + FIRST_COLUMN + j;
          pairs both{};
          if (inside(u, v)) {
            const bfloat* from = place(x, at.n, b, u, v);
            if (S::C % (2 * W) != 0 && b == BLOCKS - 1) both = contract::load_pairs<W>(from);
            else both = contract::halves<2 * W, S::X_B>(from);
          }
          store(patch.at[b][i * WIDTH + j], both);
        }
  }

  // The sum at a pixel, of the products that exist.
  static __attribute__((noinline)) vec<float> exact(const bfloat* x, const uint32_t* weight,
                                                    Pixel at) {
    vec<float> sum{};
    for (long b = 0; b < BLOCKS; b++)
      for (long tap = 0; tap < TAPS; tap++) {
        const long u = at.p * S::P_STEP + tap / S::T * S::R_STEP;
        const long v = at.q * S::Q_STEP + tap % S::T * S::S_STEP;
        if (!inside(u, v)) continue;
        const bfloat* from = place(x, at.n, b, u, v);
        for (long c = 0; c < 2 * W && 2 * W * b + c < S::C; c += 2)
          contract::add_pairs(sum, contract::pair<2, 1>(from + c / W * S::X_B + c % W),
                              load(weight + (b * TAPS + tap) * REGISTER + c / 2 * W));
      }
    return sum;
  }
  static bool at_border(long p, long q) {
    const long u = p * S::P_STEP, v = q * S::Q_STEP;
    return !inside(u, v) || !inside(u + (S::R - 1) * S::R_STEP, v + (S::T - 1) * S::S_STEP);
  }
  static bool finite(vec<float> v) {
    const mask differs = v - v != 0;
    for (int l = 0; l < W; l++)
      if (differs[l]) return false;
    return true;
  }

  // One tap of 32 channels: RM registers of pixels by V of the weight, `apart` elements apart.
  template <int V, int... M, int... J>
  static INLINE void multiply(TileRegisters& tiles, const uint32_t* a, const uint32_t* w,
                              Numbers<M...> rows, Numbers<J...>) {
    constexpr long apart = BLOCKS * TAPS * REGISTER;
    if constexpr (S::RM <= 2) {
      (load_rows<M, 4 + M>(tiles, a), ...);
      (column<V, J>(tiles, w + J * apart, rows), ...);
    } else {
      tiles.load<6>(w, TILE_BYTES);
      (row<M>(tiles, a), ...);
    }
  }
  template <int M, int REGISTER_OF_ROWS>
  static INLINE void load_rows(TileRegisters& tiles, const uint32_t* a) {
    tiles.load<REGISTER_OF_ROWS>(a + M * TILE_ROWS * S::Q_STEP * W, S::Q_STEP * TILE_BYTES);
  }
  template <int M>
  static INLINE void row(TileRegisters& tiles, const uint32_t* a) {
    load_rows<M, 4 + M % 2>(tiles, a);
    tiles.multiply<M, 4 + M % 2, 6>();
  }
  template <int V, int J, int... M>
  static INLINE void column(TileRegisters& tiles, const uint32_t* w, Numbers<M...>) {
    tiles.load<6 + J % 2>(w, TILE_BYTES);
    (tiles.multiply<M * V + J, 4 + M, 6 + J % 2>(), ...);
  }
  template <int... I>
  static INLINE void clear(TileRegisters& tiles, Numbers<I...>) {
    (tiles.zero<I>(), ...);
  }
  template <int V, int... I>
  static INLINE void take(const TileRegisters& tiles, vec<float> (&sums)[S::RM * TILE_ROWS][V],
                          Numbers<I...>) {
    (tiles.store<I>(&sums[I / V * TILE_ROWS][I % V], V * TILE_BYTES), ...);
  }

  // The pixels of a patch by V registers of output channels from register k on.
  template <int V, class E>
  static __attribute__((noinline)) void tile(TileRegisters& tiles, const bfloat* x,
                                             const Patch& patch, const uint32_t* weights,
                                             Pixel first, long k, const E& epilogue) {
    const uint32_t* const weight = weights + k * BLOCKS * TAPS * REGISTER;
    clear(tiles, First<S::RM * V>{});
    for (long b = 0; b < BLOCKS; b++)
      for (long r = 0; r < S::R; r++)
        for (long s = 0; s < S::T; s++) {
          const long offset = (S::R_STEP * r - FIRST_ROW) * WIDTH + S::S_STEP * s - FIRST_COLUMN;
          const uint32_t* const w = weight + ((b * S::R + r) * S::T + s) * REGISTER;
          multiply<V>(tiles, patch.at[b][offset], w, First<S::RM>{}, First<V>{});
        }
    vec<float> sums[S::RM * TILE_ROWS][V];
    take<V>(tiles, sums, First<S::RM * V>{});
    const long rows = least(long(S::TILE_P), S::P - first.p);
    const long columns = least(long(S::TILE_Q), S::Q - first.q);
    for (long i = 0; i < rows; i++)
      for (long j = 0; j < columns; j++) {
        const Pixel at = {first.n, first.p + i, first.q + j};
        const bool border = at_border(at.p, at.q);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
          vec<float> sum = sums[i * WIDTH + j][v];
          if (border && !finite(sum)) sum = exact(x, weight + v * BLOCKS * TAPS * REGISTER, at);
          epilogue.template operator()<W>(sum, at.n, (k + v) * W, at.p, at.q);
        }
      }
  }

  // Units [begin, end): all tiles of pixels for the first group of output channels, then the next.
  template <class E>
  static void run(const bfloat* x, const uint32_t* weights, long begin, long end,
                  const E& epilogue) {
    TileRegisters tiles;
    Patch patch;
    for (long unit = begin; unit < end; unit++) {
      const long group = unit / TILES, number = unit % TILES;
      const Pixel first = {number / Q_TILES / P_TILES, number / Q_TILES % P_TILES * S::TILE_P,
                           number % Q_TILES * S::TILE_Q};
      gather(x, first, patch);
      const long last = (group + 1) * K_TILES / S::GROUPS;
      for (long k = group * K_TILES / S::GROUPS; k < last; k++) {
        if constexpr (VECTORS % S::NV != 0) {
          if (k == K_TILES - 1) {
            tile<VECTORS % S::NV>(tiles, x, patch, weights, first, k * S::NV, epilogue);
            continue;
          }
        }
        tile<S::NV>(tiles, x, patch, weights, first, k * S::NV, epilogue);
      }
    }
  }
};

}  // namespace graphc::tiles
