// index: sums of rows by indices given as data.
//
// dtable[a][j][b] is the sum of dy[a][i][b] over the i with indices[i] == j, in ascending i. Each chunk owns a range of j and
// scans all indices, so nothing is shared and the order never changes.
#pragma once
#include "cpu/shared/simd.h"

namespace graphc {
// The offset of a number that counts through axes, the last fastest: `EXTENT` and `STRIDE` of each of RANK.
template <class Axes> INLINE long offset(long number) {
  long sum = 0;
  for (int d = Axes::RANK - 1; d > 0; d--) {
    sum += number % Axes::EXTENT[d] * Axes::STRIDE[d];
    number /= Axes::EXTENT[d];
  }
  return Axes::RANK ? sum + number * Axes::STRIDE[0] : 0;
}

// `Before`, `Places` and `After` say how dy is read along a, i and b, `Indices` how the indices are; their SIZE is that of the axes
// together. Rows [begin, end) of j.
template <class Before, class Places, class After, class Indices, long EXTENT, class T, class I>
INLINE void take_grad(const I* indices, const T* dy, T* table, long begin, long end) {
  constexpr bool contiguous = After::RANK == 1 && After::STRIDE[0] == 1;
  constexpr long size = After::SIZE, full = contiguous ? size / W * W : 0;
  for (long a = 0; a < Before::SIZE; a++) {
    T* const rows = table + a * EXTENT * size;
    for (long e = begin * size; e < end * size; e++) rows[e] = T(0);
    for (long i = 0; i < Places::SIZE; i++) {
      const long j = indices[offset<Indices>(i)];
      if (j < begin || j >= end) continue;
      const T* const from = dy + offset<Before>(a) + offset<Places>(i);
      T* const to = rows + j * size;
      for (long b = 0; b < full; b += W) store(to + b, load(to + b) + load(from + b));
      for (long b = full; b < size; b++) to[b] += from[contiguous ? b : offset<After>(b)];
    }
  }
}
}  // namespace graphc
