// The innermost loops of prebuilt contractions: a tile's sums in registers over a list of steps.
#pragma once
#include "cpu/contract/contract_registers.h"
#include "prebuilt/contraction.h"

namespace graphc::products {
// Where a term lies in both operands, in elements from a row's and a column's address.
struct Step {
  int32_t x, y;
};
constexpr int AHEAD = 12;  // steps that are prefetched; lists have as many more that may be read

// Rows of a tile, at most; copied rows lie W elements apart from step to step.
constexpr int MOST_ROWS = W == 16 ? 14 : W == 8 ? 6 : 4;
// Rows that are read in place, at most, and of a tile whose lanes are added at the end.
constexpr int MOST_IN_PLACE = W == 8 ? 3 : 4;
// Registers of columns of a tile, at most: the more, the fewer rows there are.
constexpr int most_columns(int rows) {
  if (W == 16) return rows > 6 ? 2 : rows > 3 ? 4 : 8;
  if (W == 8) return rows > 3 ? 2 : rows > 1 ? 4 : 8;
  return rows > 1 ? 4 : 8;
}
constexpr int MOST_LANED_COLUMNS = 4;

// What a tile computes. The sums begin at zero, or go on from where they lie.
struct Tile {
  const float* x[MOST_IN_PLACE];  // copied rows, or the rows in place
  const float* y[8];
  const Step* steps;
  long count;
  float* sums;
  const int32_t *row_at, *column_at;  // of its rows and registers, in the sums
  bool begin;
};

template <int MR, int NV> struct Sums {
  vec<float> at[MR][NV];

  INLINE explicit Sums(const Tile& tile) {
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++)
        at[i][j] = tile.begin ? vec<float>{} : load(tile.sums + tile.row_at[i] + tile.column_at[j]);
  }
  INLINE void keep(const Tile& tile) const {
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++) store(tile.sums + tile.row_at[i] + tile.column_at[j], at[i][j]);
  }
};

// Rows are broadcast, columns are registers, which are prefetched.
template <int MR, int NV, bool IN_PLACE>
void add_broadcast(const Tile& tile) {
  Sums<MR, NV> sum(tile);
  const float *y[NV], *x[IN_PLACE ? MR : 1];
#pragma GCC unroll 8
  for (int j = 0; j < NV; j++) y[j] = tile.y[j];
#pragma GCC unroll 4
  for (int i = 0; i < (IN_PLACE ? MR : 1); i++) x[i] = tile.x[i];
  const auto element = [&](long at, int i) __attribute__((always_inline)) {
    vec<float> one = splat(IN_PLACE ? x[IN_PLACE ? i : 0][at] : x[0][at + i]);
    pin(one);
    return one;
  };
  for (const Step *step = tile.steps, *end = step + tile.count; step != end; step++) {
    const long row = step->x, at = step->y;
#pragma GCC unroll 8
    for (int j = 0; j < NV; j++) __builtin_prefetch(y[j] + step[AHEAD].y);
    if constexpr (MR > NV) {
      vec<float> v[NV];
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++) pin(v[j] = load(y[j] + at));
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) {
        const vec<float> one = element(row, i);
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++) sum.at[i][j] = fma(one, v[j], sum.at[i][j]);
      }
    } else {
      vec<float> one[MR];
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) one[i] = element(row, i);
#pragma GCC unroll 8
      for (int j = 0; j < NV; j++) {
        vec<float> v = load(y[j] + at);
        pin(v);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) sum.at[i][j] = fma(one[i], v, sum.at[i][j]);
      }
    }
  }
  sum.keep(tile);
}

// Both are registers; the sums of a row and column are PARTIAL floats, of which these are W.
template <int MR, int NR>
void add_lanes(const Tile& tile) {
  Sums<MR, NR> sum(tile);
  const float *y[NR], *x[MR];
#pragma GCC unroll 8
  for (int j = 0; j < NR; j++) y[j] = tile.y[j];
#pragma GCC unroll 4
  for (int i = 0; i < MR; i++) x[i] = tile.x[i];
  for (const Step *step = tile.steps, *end = step + tile.count; step != end; step++) {
    const long row = step->x, at = step->y;
    vec<float> v[MR];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) pin(v[i] = load(x[i] + row));
#pragma GCC unroll 8
    for (int j = 0; j < NR; j++) {
      vec<float> one = load(y[j] + at);
      pin(one);
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) sum.at[i][j] = fma(v[i], one, sum.at[i][j]);
    }
  }
  sum.keep(tile);
}

using Multiply = void (*)(const Tile&);
// The function of a tile of `rows` by `columns` registers.
Multiply broadcast_tile(int rows, int columns, bool in_place);
Multiply laned_tile(int rows, int columns);
}  // namespace graphc::products
