// A contraction's operand packed into a panel, once per column of tiles.
#pragma once
#include "cpu/contract_loops.h"

namespace graphc::contract {

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
  const typename S::Y* from = nullptr;
  alignas(64) float at[S::PACKED ? S::EXTENT * registers() * W : 1];
};
template <class S, Cut COLUMNS, int J>
INLINE void pack_column(const typename S::Y* y, float* panel) {
  constexpr int stride = COLUMNS.size * W, rest = S::EXTENT % W;
  constexpr int rows = [] {
    int n = 0;
    while (n < W && S::inside(0, COLUMNS.start, 0, J, 0, n)) n++;
    return n;
  }();
  const typename S::Y* from = y + S::column(0, COLUMNS.start, 0, J, 0);
  float* to = panel + J * W;
  if constexpr (S::Y_LANE == 1) {
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
INLINE void pack_columns(const typename S::Y* y, float* panel, Numbers<J...>) {
  (pack_column<S, COLUMNS, J>(y, panel), ...);
}
template <class S, Cut COLUMNS>
__attribute__((noinline)) void pack(const typename S::Y* y, Panel<S>& panel) {
  pack_columns<S, COLUMNS>(y, panel.at, First<COLUMNS.size>{});
  panel.from = y;
}

template <class Y, bool PACKED>
struct PanelOr {
  using type = Y;
};
template <class Y>
struct PanelOr<Y, true> {
  using type = float;
};

}  // namespace graphc::contract
