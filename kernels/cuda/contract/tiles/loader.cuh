// loader.cuh: how tiles of a contraction's operands come to shared memory. What an access is,
// contract.cuh says.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }

template <class Offset>  // unsigned, which costs one instruction per address, or long long
struct Place {
  Offset offset;  // in elements; not meaningful if live is 0
  int live;       // how many elements of a vector exist: the others are zeros
};

// One operand's tile in shared memory, as lines of k or of outer. Lines of k are 16 bytes longer
// than they need be: 8 threads that read 16 bytes of 8 neighbouring lines meet all banks once.
template <class Access, int Outer, int BK>
struct SharedTile {
  using T = typename Access::element;
  static constexpr bool along_k = Access::along_k;
  static constexpr int line = along_k ? BK : Outer, lines = along_k ? Outer : BK;
  static constexpr int quad = 16 / sizeof(T);
  static constexpr int pitch = along_k ? BK + quad : Outer, bytes = lines * pitch * sizeof(T);
  static_assert(line % quad == 0, "lines are made of 16 bytes");
  GRAPHC_INLINE static int at(int outer, int k) {
    return along_k ? outer * pitch + k : k * pitch + outer;
  }
  GRAPHC_INLINE static T* element(T* tile, int outer, int k) {
    return &shared_at<T>(tile, at(outer, k));
  }
};

// Copies an operand's tiles. A thread keeps its place on the contiguous axis; what it knows of the
// outer index is computed once. Rows past the end repeat the last one: their sums are not used.
template <class Access, class Shared, int Extent, int K, int Threads>
struct Loader {
  using T = typename Access::element;
  static constexpr int most = smaller(Access::vector, Shared::quad);
  static constexpr int vector = most * sizeof(T) < 4 ? 1 : most;  // fewer are stored one by one
  static constexpr int bytes = vector * sizeof(T);
  static constexpr bool along_k = Access::along_k;
  static constexpr int per_line = Shared::line / vector, step = Threads / per_line;
  static constexpr int count = ceil_div(Shared::lines, step), rows = along_k ? count : 1;
  static_assert(Threads % per_line == 0, "a thread keeps its place on the contiguous axis");
  static_assert((along_k ? K : Extent) % vector == 0, "a vector exists or does not");

  const int x, y;
  typename Access::Outer row[rows];

  GRAPHC_INLINE Loader(int batch, int first)
      : x(threadIdx.x % per_line * vector), y(threadIdx.x / per_line) {
#pragma unroll
    for (int i = 0; i < rows; i++) {
      const int outer = first + (along_k ? y + i * step : x);
      row[i] = Access::outer(batch, smaller(outer, Extent - (along_k ? 1 : vector)));
    }
  }
  GRAPHC_INLINE void start(T* tile, const T* base, int k0) const {
    int k = k0 + (along_k ? x : y);
    typename Access::Depth depth = Access::depth(k);
#pragma unroll
    for (int i = 0; i < count; i++) {
      const int line = y + i * step;
      if (Shared::lines % step && line >= Shared::lines) break;
      if (!along_k && i) {
        k = k0 + line;
        depth = Access::depth(k);
      }
      const auto place = Access::at(row[along_k ? i : 0], depth);
      const int live = k < K ? place.live : 0;
      T* to = along_k ? Shared::element(tile, line, x) : Shared::element(tile, x, line);
      if constexpr (bytes >= 4)
        copy_async<bytes, Access::again>(to, base + place.offset, live * int(sizeof(T)));
      else *to = live ? base[place.offset] : T{};
    }
  }
};

}  // namespace graphc
