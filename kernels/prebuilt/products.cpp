// The tiles of products.h, by size.
#include "prebuilt/products.h"

#include "cpu/contract/contract_loops.h"

namespace graphc::products {
namespace {
using contract::First;
using contract::Numbers;

template <int MR, int NV, bool IN_PLACE> constexpr Multiply broadcast() {
  constexpr int most = IN_PLACE ? MOST_IN_PLACE : MOST_ROWS;
  if constexpr (MR <= most && NV <= most_columns(MR)) return add_broadcast<MR, NV, IN_PLACE>;
  else return nullptr;
}
template <bool IN_PLACE, int... I>
Multiply find_broadcast(int rows, int columns, Numbers<I...>) {
  static constexpr Multiply tiles[][4] = {
      {broadcast<I + 1, 1, IN_PLACE>(), broadcast<I + 1, 2, IN_PLACE>(),
       broadcast<I + 1, 4, IN_PLACE>(), broadcast<I + 1, 8, IN_PLACE>()}...};
  return tiles[rows - 1][columns == 8 ? 3 : columns / 2];
}
template <int... N> Multiply find_laned(int rows, int columns, Numbers<N...>) {
  static constexpr Multiply tiles[] = {
      add_lanes<N / MOST_LANED_COLUMNS + 1, N % MOST_LANED_COLUMNS + 1>...};
  return tiles[(rows - 1) * MOST_LANED_COLUMNS + columns - 1];
}
}  // namespace

Multiply broadcast_tile(int rows, int columns, bool in_place) {
  if (in_place) return find_broadcast<true>(rows, columns, First<MOST_IN_PLACE>{});
  return find_broadcast<false>(rows, columns, First<MOST_ROWS>{});
}
Multiply laned_tile(int rows, int columns) {
  return find_laned(rows, columns, First<MOST_IN_PLACE * MOST_LANED_COLUMNS>{});
}
}  // namespace graphc::products
