// index.cuh: the gradient of a gather. Each sum is owned by one thread, which adds what the indices
// send to it in ascending order: no atomics.
//
// A warp owns one row of the table and 32 neighbours behind it. Its lanes read 32 indices at a time
// and vote on which of them name the row; all lanes then add those elements, one after another.
//
// Block: whole warps. Grid: ceil(Before * Extent * ceil(After / 32) / warps per block).
#pragma once
#include "memory.cuh"

namespace graphc {

// out[before][j][after] = sum of dy[before][i][after] over the i with index(i) = j. The functors
// are index(i), element(before, i, after) and store(before, j, after, sum).
template <class T, int Before, int Count, int After, int Extent, class IndexOf, class Element,
          class Store>
GRAPHC_INLINE void take_grad(const IndexOf& index, const Element& element, const Store& store) {
  constexpr int strips = (After + 31) / 32;
  const int lane = threadIdx.x % 32;
  const long long warp = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  const int after = static_cast<int>(warp % strips) * 32 + lane;
  const int row = static_cast<int>(warp / strips % Extent);
  const int before = static_cast<int>(warp / strips / Extent);
  if (before >= Before) return;  // the whole warp
  T sum = 0;
  for (int first = 0; first < Count; first += 32) {
    const int mine = first + lane;
    unsigned votes = __ballot_sync(0xffffffffu, mine < Count && index(mine) == row);
    while (votes) {
      const int i = first + __ffs(votes) - 1;
      votes &= votes - 1;
      if (after < After) sum += element(before, i, after);
    }
  }
  if (after < After) store(before, row, after, sum);
}

}  // namespace graphc
