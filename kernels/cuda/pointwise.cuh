// pointwise.cuh: one thread per element and several elements per thread. A launch may have several
// parts, each with its own range of blocks; a part's body is body(i) for each i below its count.
//
// Block: any number of threads. Grid: part p has blocks(count) = ceil(count / (threads * 4)).
// Consecutive threads have consecutive elements; no shared memory.
#pragma once
#include "math.cuh"

namespace graphc {

constexpr int elements_per_thread = 4;

// Calls body(i) for the elements of `block` among the part's `count`.
template <class Index, class Body>
GRAPHC_INLINE void each(Index count, int block, const Body& body) {
  const Index first = static_cast<Index>(block) * blockDim.x * elements_per_thread + threadIdx.x;
#pragma unroll
  for (int j = 0; j < elements_per_thread; j++) {
    const Index i = first + static_cast<Index>(j) * blockDim.x;
    if (i < count) body(i);
  }
}

}  // namespace graphc
