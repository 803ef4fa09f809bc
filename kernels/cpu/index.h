// index: sums of rows by the index that data gives them.
//
// dtable[a][j][b] is the sum of dy[a][i][b] over the i with indices[i] == j, in ascending i. Each chunk owns a range of j and
// scans all indices, so nothing is shared and the order never changes.
#pragma once
#include "cpu/simd.h"

namespace graphc {
// `BEFORE`, `EXTENT`, `AFTER` are the extents of a, j and b; `COUNT` that of i. Rows [begin, end) of j.
template <long BEFORE, long EXTENT, long AFTER, long COUNT, class T, class I>
INLINE void take_grad(const I* indices, const T* dy, T* table, long begin, long end) {
  constexpr long full = AFTER / W * W;
  constexpr int rest = AFTER % W ? AFTER % W : W;
  for (long a = 0; a < BEFORE; a++) {
    T* const rows = table + a * EXTENT * AFTER;
    for (long e = begin * AFTER; e < end * AFTER; e++) rows[e] = T(0);
    for (long i = 0; i < COUNT; i++) {
      const long j = indices[i];
      if (j < begin || j >= end) continue;
      const T* from = dy + (a * COUNT + i) * AFTER;
      T* to = rows + j * AFTER;
      for (long b = 0; b < full; b += W) store(to + b, load(to + b) + load(from + b));
      if constexpr (AFTER % W != 0) store<rest>(to + full, load<rest>(to + full) + load<rest>(from + full));
    }
  }
}
}  // namespace graphc
