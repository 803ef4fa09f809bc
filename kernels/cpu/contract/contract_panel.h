// A contraction's operand packed into a panel, once per column of tiles, and the defaults of
// members that most shapes lack.
#pragma once
#include "cpu/contract/contract_loops.h"
#include "cpu/contract/contract_pairs.h"
#include "cpu/shared/amx.h"

namespace graphc::contract {

// What most shapes do not say, to inherit from.
struct Defaults {
  using X = float;  // what the operands hold in memory
  using Y = float;
  using T = float;  // and what is summed
  static constexpr int DEPTH = 0, PARTS = 1, PASSES = 1, SETS = 1, LAST_LANES = W;
  static constexpr long AHEAD = 0;
  static constexpr int ROW_SECTIONS = 1, GROUP_OUTER = 1, GROUP_COLUMNS = 1;
  static constexpr bool LANES_SUMMED = false, MOVING = false, PACKED = false, PAIRS = false,
                        Y_BLOCKED = false, AMX = false, BYTES = false;
  static constexpr long X_NEXT = 0, Y_NEXT = 0;
  static constexpr int LAST = 2, X_TILES = 0;
  static constexpr Cut rows[] = {{0, 1, 1}}, outer[] = {{0, 1, 1}}, columns[] = {{0, 1, 1}};
  static constexpr int OUTER_STEP = 1, COLUMN_STEP = 1;
  static constexpr Sum sums[] = {{0, 1, false}};
  static constexpr long row(int) { return 0; }
  template <int D> static long x_sum(const long*) { return 0; }
  template <int D> static long y_sum(const long*) { return 0; }
  template <int D> static bool guard(const long*) { return true; }
  static bool begin(const long*) { return true; }
  static constexpr bool inside(int, int, int, int, int, int) { return true; }
  static constexpr bool x_inside(int, int, int, int) { return true; }
  static constexpr bool present(int, int, int, int, int) { return true; }
  static bool last(const long*, int, int) { return false; }
};

// Adds N partial sums by halves: `add` adds the second of two to the first, by their numbers.
template <int N, class Add>
INLINE void add_by_halves(const Add& add) {
#pragma GCC unroll 4
  for (int half = N / 2; half > 0; half /= 2)
#pragma GCC unroll 4
    for (int h = 0; h < half; h++) add(h, h + half);
}
// Adds set `of` of the sums of a tile, NV registers in each of MR rows, to set `to` of others.
template <int MR, int NV, class Sums>
INLINE void add_sums(Sums& sums, int to, const Sums& others, int of) {
#pragma GCC unroll 32
  for (int i = 0; i < MR; i++)
#pragma GCC unroll 32
    for (int j = 0; j < NV; j++) sums.at[i][to * NV + j] += others.at[i][of * NV + j];
}

// A tile register in memory.
struct alignas(64) Gathered {
  uint32_t at[TILE_ROWS][TILE_ROWS];
};
// The rows of X of one tile as tile registers take them, block by block of the summed axis.
template <class S, bool AMX = S::AMX>
struct KeptRows {
  static constexpr int registers = (S::rows[0].size * S::ROW_SECTIONS + TILE_ROWS - 1) / TILE_ROWS;
  static constexpr int blocks = (S::EXTENT + TILE_ROWS - 1) / TILE_ROWS;
  const typename S::X* from = nullptr;
  Gathered at[blocks * registers];
};
// Copied, step by step, as they are multiplied one by one.
template <class S>
struct KeptRows<S, false> {
  const typename S::X* from = nullptr;
  alignas(64) typename S::X at[S::EXTENT * S::rows[0].size];
};
struct Nothing {};

template <bool THERE, class T> struct If {
  using type = Nothing;
};
template <class T> struct If<true, T> {
  using type = T;
};

// What a chunk keeps from tile to tile: AMX's registers, rows of X, and if it is PACKED
// Y of one tile of columns as [EXTENT][registers][W], once for all rows: transposed where the lanes
// of Y itself are far apart and its summed axis is contiguous, else copied, as its rows are far apart
// and would meet in few sets of the caches.
template <class S>
struct Panel {
  static constexpr int registers() {
    int most = 0;
    for (const Cut& cut : S::columns) most = cut.size > most ? cut.size : most;
    return most;
  }
  using Factor = typename FactorOf<S::PAIRS, typename S::T>::type;
  // What a block of AMX's tiles has beyond the last step is zeros.
  static constexpr long STEPS =
      S::AMX ? (S::EXTENT + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS : S::EXTENT;
  [[no_unique_address]] typename If<S::AMX, TileRegisters>::type tiles;
  typename If<S::X_TILES != 0, KeptRows<S>>::type rows[S::X_TILES != 0 ? S::X_TILES : 1];
  const typename S::Y* from = nullptr;
  alignas(64) element<Factor> at[S::PACKED ? STEPS * registers() * W : 1];
};
template <class S, Cut COLUMNS, int J>
INLINE void pack_column(const typename S::Y* y, element<typename Panel<S>::Factor>* panel) {
  constexpr int stride = COLUMNS.size * W, rest = S::EXTENT % W;
  constexpr int rows = [] {
    int n = 0;
    while (n < W && S::inside(0, COLUMNS.start, 0, J, 0, n)) n++;
    return n;
  }();
  const typename S::Y* from = y + S::column(0, COLUMNS.start, 0, J, 0);
  auto* to = panel + J * W;
  if constexpr (S::PAIRS) {
    constexpr long whole = S::EXTENT - (S::LAST != 2);
    if constexpr (S::Y_LANE == 1) {
      for (long t = 0; t < whole; t++) {
        __builtin_prefetch(from + S::y_at(t + 16));
        __builtin_prefetch(from + S::y_at(t + 16) + S::Y_NEXT);
        store(to + t * stride, interleaved<rows, 2, S::Y_NEXT>(from + S::y_at(t)));
      }
      if constexpr (S::LAST == 1)
        store(to + whole * stride, interleaved<rows, 1, S::Y_NEXT>(from + S::y_at(whole)));
    } else {
      constexpr int run = S::Y_BLOCKED ? W / 2 : W, pairs = whole % run;
      constexpr int last = 2 * pairs + (S::LAST == 1);
      for (long t = 0; t + run <= whole; t += run)
        turn_pairs<rows, 2 * run>(from + S::y_at(t), S::Y_LANE, to + t * stride, stride);
      if constexpr (last != 0)
        turn_pairs<rows, last>(from + S::y_at(whole - pairs), S::Y_LANE,
                               to + (whole - pairs) * stride, stride);
    }
  } else if constexpr (S::Y_LANE == 1) {
    for (long t = 0; t < S::EXTENT; t++) {
      __builtin_prefetch(from + S::y_at(t + 16));
      store(to + t * stride, load<rows>(from + S::y_at(t)));
    }
  } else {
    for (long t = 0; t + W <= S::EXTENT; t += W)
      transpose<rows, W, true>(from + t, S::Y_LANE, to + t * stride, stride);
    if constexpr (rest != 0)
      transpose<rows, rest, true>(from + S::EXTENT - rest, S::Y_LANE,
                                  to + (S::EXTENT - rest) * stride, stride);
  }
}
template <class S, Cut COLUMNS, int... J>
INLINE void pack_columns(const typename S::Y* y, element<typename Panel<S>::Factor>* panel,
                         Numbers<J...>) {
  (pack_column<S, COLUMNS, J>(y, panel), ...);
}
template <class S, Cut COLUMNS>
__attribute__((noinline)) void pack(const typename S::Y* y, Panel<S>& panel) {
  pack_columns<S, COLUMNS>(y, panel.at, First<COLUMNS.size>{});
  for (long i = S::EXTENT * COLUMNS.size; i < Panel<S>::STEPS * COLUMNS.size; i++)
    store(panel.at + i * W, typename Panel<S>::Factor{});
  panel.from = y;
}

template <class S, Cut COLUMNS>
INLINE const auto* packed(const typename S::Y* y, Panel<S>& panel) {
  if (panel.from != y) pack<S, COLUMNS>(y, panel);
  return panel.at;
}

// The rows of a tile of ROWS, which begin at x and at index `start`, as [EXTENT][rows]. The whole tiles
// that are kept together are copied together: their rows are neighbours in lines of memory, of which
// those of the steps lie pages apart.
template <class S, Cut ROWS>
__attribute__((noinline)) void copy_rows(const typename S::X* x, Panel<S>& panel, long tile) {
  constexpr int MR = ROWS.size;
  long count = S::X_TILES - tile % S::X_TILES;
  if (ROWS.start != 0 || ROWS.tiles == 1) count = 1;
  else if (count > ROWS.tiles - tile) count = ROWS.tiles - tile;
  auto* first = &panel.rows[tile % S::X_TILES];
  for (long t = 0; t < S::EXTENT; t++) {
    const typename S::X* from = x + S::x_at(t);
    for (long n = 0; n < count * MR; n += 64 / sizeof(typename S::X))
      __builtin_prefetch(from + S::x_at(8) + n);
    for (long j = 0; j < count; j++)
#pragma GCC unroll 32
      for (int i = 0; i < MR; i++) first[j].at[t * MR + i] = from[j * MR + i];
  }
  for (long j = 0; j < count; j++) first[j].from = x + j * MR;
}
template <class S, Cut ROWS>
INLINE const typename S::X* copied_rows(const typename S::X* x, Panel<S>& panel, long start) {
  const long tile = start / S::rows[0].size;
  auto& rows = panel.rows[tile % S::X_TILES];
  if (rows.from != x) copy_rows<S, ROWS>(x, panel, tile);
  return rows.at;
}

template <class S, bool PACKED>
struct PanelOr {
  using type = typename S::Y;
};
template <class S>
struct PanelOr<S, true> {
  using type = element<typename Panel<S>::Factor>;
};

}  // namespace graphc::contract
