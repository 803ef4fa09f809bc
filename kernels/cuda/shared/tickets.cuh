// tickets.cuh: lets the last of several blocks to finish combine the results of all, without a
// second launch. A block stores its share in memory, then draws a ticket: the number of blocks
// before it. The block with the last ticket sees what the others have stored and adds the shares in
// block order, so that the bits do not depend on which block that is.
//
// The counter of tickets is 0 before and behind a launch: the last draw sets it back. So it needs no
// memset, and a captured launch may be played again; launches that share counters must not be at once.
// (The protocol is that of the CUDA programming guide's example of memory fences.)
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

// Whether this block is the last of so many `blocks` that call it with this counter. If so, its
// threads see what those of all others wrote before. All threads of the block call it.
GRAPHC_INLINE bool draws_last(unsigned* counter, unsigned blocks) {
  __syncthreads();  // what the block stores comes before the fence of one thread
  bool last = false;
  if (threadIdx.x == 0) {
    device_fence();
    last = atomicInc(counter, blocks - 1) == blocks - 1;
    device_fence();
  }
  return __syncthreads_or(last);
}

// The block of a contraction whose k is cut: it stores the sums of its part as its threads hold them,
// [tile][part][run of sums][thread] in `workspace`. There is a counter for each tile.
struct DrawingBlock : WholeBlock {
  static constexpr bool draws = true;
  unsigned char* workspace;
  unsigned* counters;

  // The block that is the last of its tile gets the sums of all parts, which are added in ascending
  // order; false for any other.
  template <int Parts, int Threads, class T, class Sums>
  GRAPHC_INLINE bool adds_parts(Sums& sums) const {
    constexpr int count = sizeof(sums.sum) / sizeof(T), whole = 16 / sizeof(T);
    constexpr int run = count % whole == 0 ? whole : 1, runs = count / run;
    constexpr int at_once = runs < 16 ? 16 / runs : 1;  // parts whose loads are under way
    T* const own = reinterpret_cast<T*>(sums.sum);
    auto* const tile = reinterpret_cast<Run<T, run>*>(workspace) +
                       static_cast<long long>(x()) * (Parts * runs * Threads) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < runs; i++) {
      Run<T, run> part;
#pragma unroll
      for (int j = 0; j < run; j++) part.at[j] = own[i * run + j];
      tile[(y() * runs + i) * Threads] = part;
    }
    if (!draws_last(counters + x(), Parts)) return false;
    T total[count] = {};
#pragma unroll at_once
    for (int p = 0; p < Parts; p++)
#pragma unroll
      for (int i = 0; i < runs; i++) {
        Run<T, run> part;
#pragma unroll
        for (int j = 0; j < run; j++) part.at[j] = own[i * run + j];
        if (p != y()) part = tile[(p * runs + i) * Threads];
#pragma unroll
        for (int j = 0; j < run; j++) total[i * run + j] += part.at[j];
      }
#pragma unroll
    for (int i = 0; i < count; i++) own[i] = total[i];
    return true;
  }
};

}  // namespace graphc
