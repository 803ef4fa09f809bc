// lookup.cuh: how the lanes of a warp share a search for indices. All of them call these together.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

// Calls body(i), in ascending order, for those of Count places whose index(i) is `row`, the same for
// all lanes: they read 32 indices at a time and vote.
template <int Count, class Index, class Body>
GRAPHC_INLINE void each_vote(int row, const Index& index, const Body& body) {
  const int lane = threadIdx.x % 32;
  for (int first = 0; first < Count; first += 32) {
    const int mine = first + lane;
    unsigned votes = __ballot_sync(0xffffffffu, mine < Count && index(mine) == row);
    while (votes) {
      const int i = first + __ffs(votes) - 1;
      votes &= votes - 1;
      body(i);
    }
  }
}

// Calls body(j) for the index() of each lane that `lives`, if it is from 0 to below Extent. Of lanes
// that name one index the lowest is first, the others wait for their turn.
template <int Extent, class Index, class Body>
GRAPHC_INLINE void in_turn(bool lives, const Index& index, const Body& body) {
  const int lane = threadIdx.x % 32;
  const long long found = lives ? static_cast<long long>(index()) : -1;
  const int j = found >= 0 && found < Extent ? static_cast<int>(found) : -1;
  bool waits = j >= 0;
  while (__ballot_sync(0xffffffffu, waits)) {
    bool mine = waits;
    for (int other = 0; other < 31; other++) {
      const int there = __shfl_sync(0xffffffffu, waits ? j : -1, other);
      if (other < lane && there == j) mine = false;
    }
    __syncwarp();
    if (mine) {
      body(j);
      waits = false;
    }
  }
  __syncwarp();
}

}  // namespace graphc
