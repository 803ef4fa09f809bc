// Products of a contraction's tile by AMX: up to four registers of 16 x 16 sums, which hold them
// over all summed loops.
//
// A register of columns holds 16 steps of pairs as contract_pairs.h has them: a panel is made of
// such rows. A register of rows is read as it lies in memory where 16 rows exist at equal distances
// and 32 neighbours in one piece; else it is gathered first, with zeros where there is nothing, and kept for other columns
// if it had to be turned.
#pragma once
#include "cpu/contract/contract_panel.h"
#include "cpu/shared/amx.h"

namespace graphc::contract {

// The sums of a tile: in registers, or where tile registers are stored at its end.
template <class T, int MR, int NV, bool AMX>
struct Accumulators {
  vec<T> at[MR][NV];
};
template <class T, int MR, int NV>
struct Accumulators<T, MR, NV, true> {
  TileRegisters& tiles;
  vec<T> at[(MR + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS][NV];
};

template <class Tile, class S>
struct InTiles {
  using X = typename S::X;
  using Y = typename Tile::Y;
  static constexpr int MR = Tile::MR, NV = Tile::NV;
  static constexpr int RM = (MR + TILE_ROWS - 1) / TILE_ROWS;  // registers of rows
  static constexpr int ROWS = 4, COLUMNS = 6;  // the first register of each; sums are before
  static constexpr long REGISTER = sizeof(Gathered) / sizeof(X);
  static constexpr bool ODD = S::LAST != 2;
  static constexpr int WHOLE = (S::EXTENT - ODD) / TILE_ROWS;  // blocks of 16 steps
  static constexpr int REST = S::EXTENT - WHOLE * TILE_ROWS;
  static_assert(W == TILE_ROWS && RM <= 2 && RM * NV <= 4);

  static constexpr int live(int m) {
    const int rest = MR - m * TILE_ROWS;
    return rest < TILE_ROWS ? rest : TILE_ROWS;
  }
  // Elements from one row of register m to the next, or 0 if they differ.
  static constexpr long apart(int m) {
    const int first = m * TILE_ROWS;
    const long step = live(m) > 1 ? S::row(first + 1) - S::row(first) : 0;
    for (int i = 0; i < live(m); i++)
      if (S::row(first + i) != S::row(first) + i * step) return 0;
    return step;
  }
  // Whether the first N pairs of a block are neighbours.
  static constexpr bool together(int n) { return S::X_NEXT == 1 && S::x_step(n - 1) == 2 * n - 2; }

  // Steps of register M of rows, N elements of each row.
  template <int M, int N>
  static __attribute__((noinline)) void gather(const X* x, Gathered& to) {
    constexpr int first = M * TILE_ROWS, steps = (N + 1) / 2;
    constexpr long half = S::x_step(TILE_ROWS / 2);
    if constexpr (together(least(steps, TILE_ROWS / 2))) {
      for (int i = 0; i < live(M); i++) store(to.at[i], halves<N, half>(x + S::row(first + i)));
    } else if constexpr (apart(M) == 1) {
      pairs r[W] = {};
      gather_steps<live(M), N>(r, x + S::row(first), First<steps>{});
      exchange_rows<1>(r);
      for (int i = 0; i < live(M); i++) store(to.at[i], r[i]);
    } else {
      for (int i = 0; i < live(M); i++)
        for (int t = 0; t < TILE_ROWS; t++) {
          const X* p = x + S::row(first + i) + S::x_step(t);
          const uint32_t one = 2 * t < N ? p->bits : 0;
          to.at[i][t] = 2 * t + 1 < N ? one | uint32_t(p[S::X_NEXT].bits) << 16 : one;
        }
    }
    for (int i = live(M); i < TILE_ROWS; i++) store(to.at[i], pairs{});
  }
  template <int LIVE, int N, int... T>
  static INLINE void gather_steps(pairs (&r)[TILE_ROWS], const X* x, Numbers<T...>) {
    ((r[T] = interleaved<LIVE, least(2, N - 2 * T), S::X_NEXT>(x + S::x_step(T))), ...);
  }
  template <int J, int FIRST, int... T>
  static __attribute__((noinline)) void gather_columns(const Y* y, Gathered& to, Numbers<T...>) {
    (store(to.at[T], Tile::template column<FIRST + T, J>(y)), ...);
    for (int t = sizeof...(T); t < TILE_ROWS; t++) store(to.at[t], pairs{});
  }

  template <int M, int N>
  static INLINE void load_rows(TileRegisters& tiles, const X* x) {
    constexpr long step = apart(M);
    if constexpr (S::X_TILES != 0) {
      tiles.load<ROWS + M>(x + M * REGISTER, TILE_BYTES);
    } else if constexpr (step != 0 && live(M) == TILE_ROWS && together(TILE_ROWS) &&
                         N == 2 * TILE_ROWS) {
      tiles.load<ROWS + M>(x + S::row(M * TILE_ROWS), step * long(sizeof(X)));
    } else {
      Gathered rows;
      gather<M, N>(x, rows);
      tiles.load<ROWS + M>(rows.at, TILE_BYTES);
    }
  }
  template <int J, int N, int FIRST>
  static INLINE void load_columns(TileRegisters& tiles, const Y* y) {
    if constexpr (S::PACKED) {
      tiles.load<COLUMNS + J % 2>(y + (FIRST * NV + J) * W, NV * TILE_BYTES);
    } else {
      Gathered columns;
      gather_columns<J, FIRST>(y, columns, First<(N + 1) / 2>{});
      tiles.load<COLUMNS + J % 2>(columns.at, TILE_BYTES);
    }
  }
  template <int J, int N, int FIRST, int... M>
  static INLINE void column(TileRegisters& tiles, const Y* y, Numbers<M...>) {
    load_columns<J, N, FIRST>(tiles, y);
    if constexpr (S::BYTES) (tiles.multiply_bytes<M * NV + J, ROWS + M, COLUMNS + J % 2>(), ...);
    else (tiles.multiply<M * NV + J, ROWS + M, COLUMNS + J % 2>(), ...);
  }
  template <int N, int FIRST, int... M, int... J>
  static INLINE void block(TileRegisters& tiles, const X* x, const Y* y, Numbers<M...> rows,
                           Numbers<J...>) {
    (load_rows<M, N>(tiles, x), ...);
    (column<J, N, FIRST>(tiles, y, rows), ...);
  }

  static INLINE void begin(TileRegisters& tiles) { clear(tiles, First<RM * NV>{}); }
  // What `add` reads for a tile whose rows begin at x and at index `start`.
  static INLINE const X* kept(Panel<S>& panel, const X* x, long start) {
    auto& rows = panel.rows[start / S::rows[0].size % S::X_TILES];
    if (rows.from != x) gather_all(x, rows.at, First<RM>{});
    rows.from = x;
    return (const X*)rows.at;
  }
  // Adds the steps of the innermost loop.
  static INLINE void add(TileRegisters& tiles, const X* x, const Y* y) {
    for (long b = 0; b < WHOLE; b++) {
      const long z = b * TILE_ROWS;
      block<2 * TILE_ROWS, 0>(tiles, place(x, z), y + Tile::y_at(z), First<RM>{}, First<NV>{});
    }
    if constexpr (REST != 0) {
      constexpr int first = WHOLE * TILE_ROWS;
      block<2 * REST - ODD, first>(tiles, place(x, first), y, First<RM>{}, First<NV>{});
    }
  }
  template <class Sums>
  static INLINE void end(Sums& sums) {
    take(sums, First<RM * NV>{});
  }

 private:
  static INLINE const X* place(const X* x, long z) {
    return x + (S::X_TILES != 0 ? z / TILE_ROWS * RM * REGISTER : S::x_at(z));
  }
  template <int... M>
  static __attribute__((noinline)) void gather_all(const X* x, Gathered* to, Numbers<M...>) {
    for (long b = 0; b < WHOLE; b++)
      (gather<M, 2 * TILE_ROWS>(x + S::x_at(b * TILE_ROWS), to[b * RM + M]), ...);
    if constexpr (REST != 0)
      (gather<M, 2 * REST - ODD>(x + S::x_at(WHOLE * TILE_ROWS), to[WHOLE * RM + M]), ...);
  }
  template <int... R>
  static INLINE void clear(TileRegisters& tiles, Numbers<R...>) {
    (tiles.zero<R>(), ...);
  }
  template <class Sums, int... R>
  static INLINE void take(Sums& sums, Numbers<R...>) {
    (sums.tiles.template store<R>(&sums.at[R / NV * TILE_ROWS][R % NV], NV * TILE_BYTES), ...);
  }
};

}  // namespace graphc::contract
