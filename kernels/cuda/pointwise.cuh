// pointwise.cuh: one element after another, PerThread of them per thread. A launch may have several
// parts, each with a range of blocks and a body of its own.
//
// Block: any number of threads. A part of `count` elements has ceil(count / (threads * PerThread))
// blocks. Neighbouring threads have neighbouring elements. No shared memory.
#pragma once
#include "memory.cuh"

namespace graphc {

// Calls body(i) for the elements of `block`, counted within the part, among the part's `count`.
template <int PerThread, class Index, class Body>
GRAPHC_INLINE void each(Index count, int block, const Body& body) {
  const Index first = static_cast<Index>(block) * blockDim.x * PerThread + threadIdx.x;
#pragma unroll
  for (int j = 0; j < PerThread; j++) {
    const Index i = first + static_cast<Index>(j) * blockDim.x;
    if (i < count) body(i);
  }
}

}  // namespace graphc
