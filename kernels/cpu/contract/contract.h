// contract: out[o(i)] = epilogue(sum over the summed axes of X(i) * Y(i)), one register tile at a
// time. X is the operand that the tile's rows index, Y the one that its columns index.
//
// A generated Shape says everything about the loop nest in constants. Its axes are numbered by an
// enum; at[axis] is a logical index (that of lane 0 along the lane axis). A tile is ROWS x OUTER x
// COLUMNS registers: up to three kept axes, each cut into runs of equal tiles (Cut), so that the
// last, partial tile is one more instantiation and not a loop of its own.
//
//   loops        the kept loops from the outermost: every iteration is one tile. Chunks are ranges
//                of this sequence.
//   sums         the summed loops around the innermost. A guarded one skips steps that fall
//                outside an operand (Shape::guard<depth>): borders cost nothing.
//   EXTENT, HEAD, MAIN, UNROLL
//                the innermost summed axis: steps [0, HEAD) and [MAIN, EXTENT) are
//                unrolled away, [HEAD, MAIN) is a loop of UNROLL steps at a time.
//   column(o, c, t), row(i), x_step(t)
//                offsets in elements, constant in the unrolled steps; y_at and x_at at run time.
//   inside(o0, c0, o, c, t, lane)
//                whether Y exists there. Products with padding are never emitted: a register that
//                is outside altogether is not loaded, one that is so in part is loaded in part.
//   X_LANE, Y_LANE
//                the step of one lane: 0 is a broadcast, 1 a vector load, another a gather.
//   MOVING       the tile's outer places meet a border that moves with the last summed loop: each
//                has an address of its own, of zeros where it is outside (outer_inside).
//   PARTS, PASSES, SETS
//                of a sum: ranges of the outermost loop that chunks add; for lanes of several
//                registers, passes over every so many of its blocks, or sets of sums for the steps.
//   AHEAD        if not 0, how far ahead the next tile's rows of X lie, which are then prefetched.
//   PACKED       Y is copied or transposed into a panel once per column of tiles, for all rows.
//   PAIRS        both operands are bf16, and a step is two neighbours along the innermost summed axis:
//                X_NEXT and Y_NEXT elements apart, added at once by `add_pairs` (contract_pairs.h).
//                Y_BLOCKED: Y lies in blocks of W along that axis. Where the lanes are summed, it is two registers of them. LAST of the two, or of all
//                their lanes, are in the last step.
//   BYTES        a pair is four bytes, u8 of X and i8 of Y, whose sums are i32.
//   AMX          ... by tile registers, 16 steps at once (contract_amx.h).
//   X_TILES      of so many tiles a chunk keeps the rows: gathered for AMX, else copied, as the steps of
//                X lie pages apart.
//   X, Y, T      what the operands hold in memory, and what is summed: float, double, or unsigned
//                integers, which wrap. A register of elements of eight bytes is two of the machine's.
//
// finish<N>(epilogue, sum, at, i, o, c) takes register (i, o, c) with N live lanes. Where the epilogue
// needs several sums at once it gets an array, and i, o and c count groups: of ROW_SECTIONS registers
// of rows (a row of Shape::rows then stands for so many, one per section), or of GROUP_OUTER x
// GROUP_COLUMNS registers of columns (sections of Y, or the pixels of a pooling window). Where the
// lane axis is summed (LANES_SUMMED), lanes are added at the end and the sums go to
// place(at, i, o, c) of the epilogue's `out`: the output itself, or a workspace for a second phase,
// as do the PARTS of a sum that is cut along its outermost loop.
#pragma once
#include "cpu/contract/contract_amx.h"

namespace graphc::contract {

// ---- one tile ------------------------------------------------------------------------------------

template <class S, Cut ROWS, Cut OUTER, Cut COLUMNS>
struct Tile {
  static constexpr int MR = ROWS.size * S::ROW_SECTIONS, NV = OUTER.size * COLUMNS.size;
  using Register = vec<typename S::T>;
  using Sums = Accumulators<typename S::T, MR, NV * S::SETS, S::AMX>;
  using X = typename S::X;
  using Y = typename PanelOr<S, S::PACKED>::type;
  using Factor = typename Panel<S>::Factor;  // a register, of T or of pairs of bf16
  using Sum = SumOf<typename S::T>;
  static constexpr int LINE = 64 / sizeof(typename S::T);  // of the cache, in elements

  // The lanes of column j that exist in step t. Every tile of a cut is like its first.
  static constexpr unsigned lanes(int j, int t) {
    unsigned mask = 0;
    for (int l = 0; l < W; l++) {
      const int o = j / COLUMNS.size, c = j % COLUMNS.size;
      mask |= unsigned(S::inside(OUTER.start, COLUMNS.start, o, c, t, l)) << l;
    }
    return mask;
  }
  static constexpr unsigned x_lanes(int t) {
    unsigned mask = 0;
    for (int l = 0; l < W; l++)
      mask |= unsigned(S::x_inside(OUTER.start, COLUMNS.start, t, l)) << l;
    return mask;
  }
  static constexpr unsigned column_lanes(int j) {  // those of the output
    unsigned mask = 0;
    for (int l = 0; l < W; l++) {
      const int o = j / COLUMNS.size, c = j % COLUMNS.size;
      mask |= unsigned(S::present(OUTER.start, COLUMNS.start, o, c, l)) << l;
    }
    return mask;
  }
  // Of the pairs of step t: 2, of lanes 2 * W, unless it is the last.
  static constexpr int pairs_at(int t) {
    return t == S::EXTENT - 1 ? S::LAST : S::LANES_SUMMED ? 2 * W : 2;
  }
  // Where the rows of X are: as they lie, or copied step by step.
  static constexpr bool COPIED = S::X_TILES != 0 && !S::AMX;
  static constexpr long x_row(int i) { return COPIED ? i : S::row(i); }
  static constexpr long x_step(int t) { return COPIED ? long(t) * MR : S::x_step(t); }
  static INLINE long x_at(long z) { return COPIED ? z * MR : S::x_at(z); }
  // A row's value: a scalar where X has no lanes, which multiplies as a broadcast.
  template <int T>
  static INLINE auto row(const X* x, int i) {
    if constexpr (S::PAIRS && S::LANES_SUMMED)
      return halves<pairs_at(T), S::X_NEXT>(x + S::row(i) + S::x_step(T));
    else if constexpr (S::PAIRS) return pair<pairs_at(T), S::X_NEXT>(x + S::row(i) + S::x_step(T));
    else if constexpr (S::X_LANE == 0 && !is_narrow<X>) return x[x_row(i) + x_step(T)];
    else return fetch<x_lanes(T), S::X_LANE>(x + S::row(i) + S::x_step(T));
  }
  template <int T, int J>
  static INLINE Factor column(const Y* y) {
    constexpr int o = J / COLUMNS.size, c = J % COLUMNS.size;
    constexpr int live = prefix(lanes(J, T));
    if constexpr (S::PACKED) return load(y + (T * NV + J) * W);
    else if constexpr (S::PAIRS && S::LANES_SUMMED)
      return halves<pairs_at(T), S::Y_NEXT>(y + S::column(OUTER.start, COLUMNS.start, o, c, T));
    else if constexpr (S::PAIRS)
      return interleaved<live, pairs_at(T), S::Y_NEXT>(
          y + S::column(OUTER.start, COLUMNS.start, o, c, T));
    else return fetch<lanes(J, T), S::Y_LANE>(y + S::column(OUTER.start, COLUMNS.start, o, c, T));
  }
  // Y at each outer place: its own address, or zeros where the place is outside.
  struct Places {
    const Y* at[OUTER.size];
  };
  template <int T, int J>
  static INLINE Factor column(const Places& y) {
    constexpr int o = J / COLUMNS.size, c = J % COLUMNS.size;
    return fetch<lanes(J, T), S::Y_LANE>(y.at[o] + S::column(OUTER.start, COLUMNS.start, 0, c, T));
  }
  static constexpr long reach() {  // the largest offset from an outer place
    long most = 0;
    for (int c = 0; c < COLUMNS.size; c++)
      for (int t = 0; t < S::EXTENT; t++) {
        const long offset = S::column(OUTER.start, COLUMNS.start, 0, c, t);
        most = offset > most ? offset : -offset > most ? -offset : most;
      }
    return most + W * (S::Y_LANE > 1 ? S::Y_LANE : 1);
  }
  static INLINE Places places(const Y* y, const long* at) {
    static const Y zeros[2 * reach()] = {};
    Places places;
#pragma GCC unroll 16
    for (int o = 0; o < OUTER.size; o++)
      places.at[o] = S::outer_inside(at, o) ? y + o * S::outer_stride() : zeros + reach();
    return places;
  }
  template <int T, int J, class From>
  static INLINE void hold(Factor (&v)[NV], const From& y) {
    if constexpr (lanes(J, T) != 0) {
      v[J] = column<T, J>(y);
      pin(v[J]);
    }
  }
  template <int T, int J, class Row, class From>
  static INLINE void rows_times(Sums& sums, const Row (&x)[MR], const From& y) {
    if constexpr (lanes(J, T) != 0) {
      Factor v = column<T, J>(y);
      if constexpr (MR > 1) pin(v);
#pragma GCC unroll 32
      for (int i = 0; i < MR; i++) add<S::BYTES>(sums.at[i][T % S::SETS * NV + J], x[i], v);
    }
  }
  template <int T, int J, class Row>
  static INLINE void multiply(Sums& sums, int i, Row x, const Factor (&v)[NV]) {
    if constexpr (lanes(J, T) != 0) add<S::BYTES>(sums.at[i][T % S::SETS * NV + J], x, v[J]);
  }
  static constexpr bool live(int t) {
    for (int j = 0; j < NV; j++)
      if (lanes(j, t) != 0) return true;
    return false;
  }

  // One summed step: the operand with fewer registers is held, the other used as it is loaded.
  template <int T, int... J, class From>
  static INLINE void step(Sums& sums, const X* x, const From& y, Numbers<J...>) {
    if constexpr (!live(T)) {
      return;
    } else if constexpr (MR <= NV) {
      decltype(row<T>(x, 0)) rows[MR];
#pragma GCC unroll 32
      for (int i = 0; i < MR; i++) rows[i] = row<T>(x, i);
      (rows_times<T, J>(sums, rows, y), ...);
    } else {
      Factor v[NV];
      (hold<T, J>(v, y), ...);
#pragma GCC unroll 32
      for (int i = 0; i < MR; i++) {
        const auto one = row<T>(x, i);
        (multiply<T, J>(sums, i, one, v), ...);
      }
    }
  }
  // What a later step loads again must not be held until then: the sums need the registers.
  static INLINE void forget() { asm volatile("" ::: "memory"); }
  template <int FIRST, int... T, class From>
  static INLINE void steps(Sums& sums, const X* x, const From& y, Numbers<T...>) {
    ((step<FIRST + T>(sums, x, y, First<NV>{}), forget()), ...);
  }
  static INLINE long y_at(long z) { return S::PACKED ? z * NV * W : S::y_at(z); }
  static INLINE void prefetch_rows(const X* x) {
#pragma GCC unroll 32
    for (int i = 0; i < MR; i++) __builtin_prefetch(x + S::row(i));
  }
  // Steps of the main loop are all like step HEAD, at a moving address.
  static INLINE void innermost(Sums& sums, const X* x, const Y* y) {
    if constexpr (S::AMX) return InTiles<Tile, S>::add(sums.tiles, x, y);
    steps<0>(sums, x, y, First<S::HEAD>{});
    if constexpr (S::HEAD < S::MAIN) {
      const X* x0 = x - x_step(S::HEAD);
      const Y* y0 = y - y_at(S::HEAD);
#pragma GCC unroll 1
      for (long z = S::HEAD; z < S::MAIN; z += S::UNROLL) {
        if constexpr (S::AHEAD != 0)
          if (z % (S::PAIRS ? LINE / 2 : LINE) == 0) prefetch_rows(x + S::x_at(z) + S::AHEAD);
        steps<S::HEAD>(sums, x0 + x_at(z), y0 + y_at(z), First<S::UNROLL>{});
      }
    }
    steps<S::MAIN>(sums, x, y, First<S::EXTENT - S::MAIN>{});
  }
  template <int D>
  static INLINE void sum(Sums& sums, const X* x, const Y* y, long* at) {
    if constexpr (D == S::DEPTH) {
      innermost(sums, x, y);
    } else {
      constexpr long step = D == 0 ? S::PASSES : 1;
      long begin = 0, end = S::sums[D].extent;
      if constexpr (D == 0 && S::PARTS * S::PASSES > 1) {
        const long part = at[S::AXES], rounds = (end + step - 1) / step;
        begin = part * rounds / S::PARTS * step + at[S::AXES + 1];
        end = least((part + 1) * rounds / S::PARTS * step, end);
      }
      const auto one = [&](long z) __attribute__((always_inline)) {
        at[S::sums[D].axis] = z;
        if constexpr (S::sums[D].guarded)
          if (!S::template guard<D>(at)) return;
        const X* xd = x + S::template x_sum<D>(at);
        const Y* yd = y + S::template y_sum<D>(at);
        if constexpr (S::MOVING && D + 1 == S::DEPTH)
          steps<0>(sums, xd, places(yd, at), First<S::EXTENT>{});
        else sum<D + 1>(sums, xd, yd, at);
      };
      if constexpr (S::MOVING && D + 1 == S::DEPTH && S::sums[D].extent <= 3) {
#pragma GCC unroll 3
        for (long z = begin; z < end; z += step) one(z);
      } else {
#pragma GCC unroll 1
        for (long z = begin; z < end; z += step) one(z);
      }
    }
  }

  // Pass h adds every PASSES-th block from h on; the passes are added as lanes are.
  static INLINE void sum_passes(Sums& sums, const X* x, const Y* y, long* at) {
    Sums kept[S::PASSES];
#pragma GCC unroll 1
    for (int h = 0; h < S::PASSES; h++) {
      Sums own = sums;
      at[S::AXES + 1] = h;
      sum<0>(own, x, y, at);
      kept[h] = own;
    }
    add_by_halves<S::PASSES>([&](int h, int g) { add_sums<MR, NV>(kept[h], 0, kept[g], 0); });
    sums = kept[0];
  }

  // The registers that the epilogue takes at once: one, or those of a group.
  template <int N, int O, int C, class Epilogue>
  static INLINE void finish_row(const Sums& sums, int i, const long* at, const Epilogue& epilogue) {
    constexpr int rows = S::ROW_SECTIONS, outer = S::GROUP_OUTER, columns = S::GROUP_COLUMNS;
    if constexpr (rows * outer * columns == 1) {
      S::template finish<N>(epilogue, (Sum)sums.at[i][O * COLUMNS.size + C], at, i, O, C);
    } else {
      Sum group[rows * outer * columns];
#pragma GCC unroll 16
      for (int e = 0; e < rows * outer * columns; e++)
        group[e] =
            (Sum)sums
                .at[i * rows + e / (outer * columns)]
                   [(O * outer + e / columns % outer) * COLUMNS.size + C * columns + e % columns];
      S::template finish<N>(epilogue, group, at, i, O, C);
    }
  }
  template <int N, int O, int C, class Epilogue>
  static INLINE void finish_group(const Sums& sums, const long* at, const Epilogue& epilogue) {
    if constexpr (Epilogue::LONG || S::AMX) {
#pragma GCC unroll 1
      for (int i = 0; i < MR / S::ROW_SECTIONS; i++) finish_row<N, O, C>(sums, i, at, epilogue);
    } else {
#pragma GCC unroll 32
      for (int i = 0; i < MR / S::ROW_SECTIONS; i++) finish_row<N, O, C>(sums, i, at, epilogue);
    }
  }
  template <int J, class Epilogue>
  static INLINE void finish_number(const Sums& sums, const long* at, const Epilogue& epilogue) {
    constexpr int across = COLUMNS.size / S::GROUP_COLUMNS, o = J / across, c = J % across;
    constexpr int first = o * S::GROUP_OUTER * COLUMNS.size + c * S::GROUP_COLUMNS;
    if (S::LAST_LANES < W && S::last(at, first / COLUMNS.size, first % COLUMNS.size))
      finish_group<S::LAST_LANES, o, c>(sums, at, epilogue);
    else finish_group<prefix(column_lanes(first)), o, c>(sums, at, epilogue);
  }
  template <int... J, class Epilogue>
  static INLINE void finish(const Sums& sums, const long* at, const Epilogue& epilogue,
                            Numbers<J...>) {
    (finish_number<J>(sums, at, epilogue), ...);
  }
  // Registers FIRST, FIRST + 1, ... of the tile, column by column: W of them at a time.
  template <int FIRST>
  static INLINE void add_lanes(Sums& sums, const long* at, element<Sum>* out) {
    if constexpr (FIRST < MR * NV) {
      constexpr int count = MR * NV - FIRST < W ? MR * NV - FIRST : W;
      Register v[W] = {};
#pragma GCC unroll 16
      for (int e = 0; e < count; e++) v[e] = sums.at[(FIRST + e) % MR][(FIRST + e) / MR];
      const Register total = lanesums(v);
#pragma GCC unroll 16
      for (int e = 0; e < count; e++) {
        const int i = (FIRST + e) % MR, j = (FIRST + e) / MR;
        out[S::place(at, i, j / COLUMNS.size, j % COLUMNS.size)] = total[e];
      }
      add_lanes<FIRST + W>(sums, at, out);
    }
  }
  static INLINE Sums zeros(Panel<S>& panel) {
    if constexpr (S::AMX) {
      InTiles<Tile, S>::begin(panel.tiles);
      return {panel.tiles};
    } else {
      Sums sums;
#pragma GCC unroll 32
      for (int i = 0; i < MR; i++)
#pragma GCC unroll 32
        for (int j = 0; j < NV * S::SETS; j++) sums.at[i][j] = Register{};
      return sums;
    }
  }
  template <class Epilogue>
  static __attribute__((noinline)) void run(const X* x, const typename S::Y* memory, long* at,
                                            const Epilogue& epilogue, Panel<S>& panel) {
    Sums sums = zeros(panel);
    x += S::x_base(at), memory += S::y_base(at);
    const Y* y;
    if constexpr (S::PACKED) y = packed<S, COLUMNS>(memory, panel);
    else y = memory;
    if constexpr (COPIED) x = copied_rows<S, ROWS>(x, panel, at[S::ROWS]);
    else if constexpr (S::X_TILES != 0) x = InTiles<Tile, S>::kept(panel, x, at[S::ROWS]);
    if (S::begin(at)) {
      if constexpr (S::PASSES == 1) sum<0>(sums, x, y, at);
      else sum_passes(sums, x, y, at);
    }
    add_by_halves<S::SETS>([&](int h, int g) { add_sums<MR, NV>(sums, h, sums, g); });
    constexpr First<NV / (S::GROUP_OUTER * S::GROUP_COLUMNS)> groups;
    if constexpr (S::AMX) {
      InTiles<Tile, S>::end(sums);
      finish(sums, at, epilogue, groups);
    } else if constexpr (S::LANES_SUMMED) {
      add_lanes<0>(sums, at, epilogue.out);
    } else if constexpr (Epilogue::LONG) {  // one text for all rows, so sums leave the registers
      Sums kept;
#pragma GCC unroll 32
      for (int i = 0; i < MR; i++)
#pragma GCC unroll 32
        for (int j = 0; j < NV; j++) kept.at[i][j] = sums.at[i][j];
      finish(kept, at, epilogue, groups);
    } else {
      finish(sums, at, epilogue, groups);
    }
  }
};

// ---- the sequence of tiles -----------------------------------------------------------------------

template <class S, class Epilogue>
INLINE void tile(const typename S::X* x, const typename S::Y* y, long* at, const Epilogue& epilogue,
                 Panel<S>& panel) {
  choose<S::rows, 0, 1>(at[S::ROWS], [&]<Cut R>() {
    choose<S::outer, 0, S::OUTER_STEP>(at[S::OUTER], [&]<Cut O>() {
      choose<S::columns, 0, S::COLUMN_STEP>(
          at[S::COLUMNS], [&]<Cut C>() { Tile<S, R, O, C>::run(x, y, at, epilogue, panel); });
    });
  });
}

// The tiles of one chunk: a range of the sequence of all kept loops.
template <class S, class Epilogue>
INLINE void run(const typename S::X* x, const typename S::Y* y, int chunk,
                const Epilogue& epilogue) {
  constexpr long total = S::TILES / S::GRAIN;
  const long part = chunk / S::CHUNKS, own = chunk % S::CHUNKS;
  const long begin = own * total / S::CHUNKS * S::GRAIN;
  const long end = (own + 1) * total / S::CHUNKS * S::GRAIN;
  Iteration<S> iteration(begin);
  Panel<S> panel;
  for (long u = begin; u < end; u++, iteration.next()) {
    long at[S::AXES + 2] = {};
    at[S::AXES] = part;
    iteration.place(at);
    if (at[S::ROWS] < S::ROW_TILES) tile<S>(x, y, at, epilogue, panel);
  }
}

}  // namespace graphc::contract
