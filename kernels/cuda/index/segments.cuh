// segments.cuh: sums of elements with one index, without atomics. The indices are sorted first, as
// entries of sort.cuh: the index above, its place below, so that equal ones stay in order. Those that
// name a row are then a segment. A block finds where the segments of Together rows begin; each of
// its warps adds the elements of a row, Strips strips of 32 runs of V neighbours.
//
// Block: THREADS. Grid: see add_segments. Shared memory: static, a tile of entries, or Together + 1
// ints.
#pragma once
#include "cuda/prefix/sort.cuh"

namespace graphc {

// Sorts tiles of Size of the Count indices; those that are out of range come after all others.
template <int Count, int Extent, int Size, class IndexOf>
GRAPHC_INLINE void sort_places(Entry<int>* entries, const IndexOf& index) {
  sort_tiles<int, false, 1, Count, (Count + Size - 1) / Size, 1, Size, Size>(
      [&](int, int i) {
        const long long found = index(i);
        return found >= 0 && found < Extent ? static_cast<int>(found) : Extent;
      },
      [&](int tile, int j, const Entry<int>& entry) { entries[tile * Size + j] = entry; });
}

// The first of Count sorted entries whose index is not below `index`.
template <int Count>
GRAPHC_INLINE int first_of(const Entry<int>* sorted, int index) {
  const Entry<int> least = pack<int, false>(index, 0);
  int low = 0, high = Count;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (sorted[middle].before(least)) low = middle + 1;
    else high = middle;
  }
  return low;
}

// out[before][j][after] = sum of dy[before][i][after] over the i whose index is j, with the Count
// entries sorted. element(before, i, after) gives a run of V elements, store(before, j, after, sums)
// takes one. Grid: Before * ceil(Extent / Together) * ceil(After / (32 * V * Strips)).
template <class T, int V, int Before, int Count, int After, int Extent, int Together, int Strips,
          class Element, class Store>
GRAPHC_INLINE void add_segments(const Entry<int>* sorted, const Element& element,
                                const Store& store) {
  constexpr int width = 32 * V, parts = (After + width * Strips - 1) / (width * Strips);
  constexpr int groups = (Extent + Together - 1) / Together;
  constexpr int ahead = 8;  // elements that are loaded before the first of them is added
  __shared__ int starts[Together + 1];
  const int part = blockIdx.x % parts, before = blockIdx.x / parts / groups;
  const int first = blockIdx.x / parts % groups * Together;
  const int rows = Extent - first < Together ? Extent - first : Together;
  const int thread = threadIdx.x, warps = blockDim.x / 32;
  if (thread <= rows) starts[thread] = first_of<Count>(sorted, first + thread);
  __syncthreads();
  for (int n = thread / 32; n < rows * Strips; n += warps) {
    const int row = n / Strips;
    const int after = (part * Strips + n % Strips) * width + thread % 32 * V;
    if (after >= After) continue;
    Run<T, V> sums;
#pragma unroll
    for (int v = 0; v < V; v++) sums.at[v] = 0;
    const int last = starts[row + 1];
    for (int k = starts[row]; k < last; k += ahead) {
      Run<T, V> added[ahead];
#pragma unroll
      for (int j = 0; j < ahead; j++)
        if (k + j < last)
          added[j] = element(before, unpack<int, false>(sorted[k + j]).place, after);
#pragma unroll
      for (int j = 0; j < ahead; j++)
#pragma unroll
        for (int v = 0; v < V; v++)
          if (k + j < last) sums.at[v] += added[j].at[v];
    }
    store(before, first + row, after, sums);
  }
}

}  // namespace graphc
