// scatter.cuh: elements stored at the positions that indices name. A row is the axis at one index
// of the others. One thread owns it, so that elements are combined in ascending order of their
// index, without atomics.
//
// Warps: a warp owns a row. Its lanes take 32 indices at a time; of lanes that name one place the
// lowest joins first, the others wait for their turn.
// Threads: where neighbouring rows are neighbours in memory, a thread owns a row.
//
// Block: whole warps. Grid: enough threads, or warps, for all rows.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

struct ScatterReplace {
  template <class T>
  GRAPHC_INLINE static T join(T, T b) {
    return b;
  }
};
struct ScatterSum {
  template <class T>
  GRAPHC_INLINE static T join(T a, T b) {
    return a + b;
  }
};
struct ScatterProd {
  template <class T>
  GRAPHC_INLINE static T join(T a, T b) {
    return a * b;
  }
};
struct ScatterMax {
  template <class T>
  GRAPHC_INLINE static T join(T a, T b) {
    return maximum(a, b);
  }
};
struct ScatterMin {
  template <class T>
  GRAPHC_INLINE static T join(T a, T b) {
    return minimum(a, b);
  }
};

// old(before, j, after), place(before, i, after) and source(before, i, after) read an element,
// out[before][j][after] is written, and has the old elements already if they lie `in_place`; Rows is
// the number of (before, after).
template <class Join, long long Rows, int Extent, int Count, int After, bool Warps, class T,
          class Old, class Place, class Source>
GRAPHC_INLINE void scatter(bool in_place, T* out, const Old& old, const Place& place,
                           const Source& source) {
  constexpr int owners = Warps ? 32 : 1;
  const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long number = thread / owners;
  if (number >= Rows) return;  // a whole warp, where warps own rows
  const int lane = static_cast<int>(thread % owners);
  const int before = static_cast<int>(number / After), after = static_cast<int>(number % After);
  T* const row = out + static_cast<long long>(before) * Extent * After + after;
  for (int j = lane; j < (in_place ? 0 : Extent); j += owners)
    row[static_cast<long long>(j) * After] = static_cast<T>(old(before, j, after));
  for (int first = 0; first < Count; first += owners) {
    const int i = first + lane;
    const long long found = i < Count ? static_cast<long long>(place(before, i, after)) : -1;
    const int j = found >= 0 && found < Extent ? static_cast<int>(found) : -1;
    if constexpr (Warps) {
      bool waits = j >= 0;
      while (__ballot_sync(0xffffffffu, waits)) {
        bool mine = waits;
        for (int other = 0; other < 31; other++) {
          const int place_there = __shfl_sync(0xffffffffu, waits ? j : -1, other);
          if (other < lane && place_there == j) mine = false;
        }
        __syncwarp();
        if (mine) {
          T& y = row[static_cast<long long>(j) * After];
          y = static_cast<T>(Join::join(vec<T>(y), source(before, i, after)));
          waits = false;
        }
      }
      __syncwarp();
    } else if (j >= 0) {
      T& y = row[static_cast<long long>(j) * After];
      y = static_cast<T>(Join::join(vec<T>(y), source(before, i, after)));
    }
  }
}

}  // namespace graphc
