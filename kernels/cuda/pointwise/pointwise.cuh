// pointwise.cuh: element-wise code, PerThread elements per thread. A launch may have several parts,
// each with a range of blocks and a body of its own.
//
// Block: any number of threads. A part of `count` elements has ceil(count / (threads * PerThread))
// blocks. Neighbouring threads have neighbouring elements, or runs of them. No shared memory.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

// Calls body(i) for the element of each of the Threads of `block`, counted within the part.
template <int Threads = 256, class Index, class Body>
GRAPHC_INLINE void each(Index count, int block, const Body& body) {
  const Index i = static_cast<Index>(block) * Threads + threadIdx.x;
  if (i < count) body(i);
}

// Calls body(i) for element i of Rows x Columns, of which a block of 256 threads has a patch: 16 rows
// of 16 columns.
template <int Rows, int Columns, class Body>
GRAPHC_INLINE void each_of_patch(int block, const Body& body) {
  constexpr int across = (Columns + 15) / 16;
  const int row = block / across * 16 + threadIdx.x / 16;
  const int column = block % across * 16 + threadIdx.x % 16;
  if (row < Rows && column < Columns) body(row * Columns + column);
}

// Calls body(i) for the first element i of each thread's run of Length, which divides `count`.
template <int Length, class Index, class Body>
GRAPHC_INLINE void each_run(Index count, int block, const Body& body) {
  const Index i = (static_cast<Index>(block) * blockDim.x + threadIdx.x) * Length;
  if (i < count) body(i);
}

// Calls body(i, load(i)) for PerThread elements of each thread, after all the loads: outputs may
// lie where inputs do, so that the compiler would not move a load before an earlier store.
template <int PerThread, class Index, class Load, class Body>
GRAPHC_INLINE void each(Index count, int block, const Load& load, const Body& body) {
  const Index first = static_cast<Index>(block) * blockDim.x * PerThread + threadIdx.x;
  decltype(load(first)) loaded[PerThread];
#pragma unroll
  for (int j = 0; j < PerThread; j++) {
    const Index i = first + static_cast<Index>(j) * blockDim.x;
    if (i < count) loaded[j] = load(i);
  }
#pragma unroll
  for (int j = 0; j < PerThread; j++) {
    const Index i = first + static_cast<Index>(j) * blockDim.x;
    if (i < count) body(i, loaded[j]);
  }
}

// Calls run(pixel, channel) for the first channel of each run of Length of an image, and each(pixel,
// channel) for those that are no whole run, by Threads threads.
template <int Pixels, int Channels, int Length, int Threads, class Body, class Each>
GRAPHC_INLINE void each_run_of_image(const Body& run, const Each& each) {
  constexpr int runs = (Channels + Length - 1) / Length;
  for (int i = threadIdx.x; i < Pixels * runs; i += Threads) {
    const int pixel = i / runs, channel = i % runs * Length;
    if (Channels % Length == 0 || channel + Length <= Channels) run(pixel, channel);
    else
#pragma unroll
      for (int j = 0; j < Channels % Length; j++) each(pixel, channel + j);
  }
}

// Stores an image row-major, in runs of Length, whose channels wait as lines of Pixels and one more.
template <int Pixels, int Channels, int Length, int Threads, class T>
GRAPHC_INLINE void store_turned(T* image, const T* waiting) {
  static_assert(Pixels * Channels % Length == 0, "whole runs");
  for (int i = threadIdx.x * Length; i < Pixels * Channels; i += Threads * Length) {
    Run<T, Length> run;
#pragma unroll
    for (int j = 0; j < Length; j++) run.at[j] = waiting[i + j + (i + j) / Pixels];
    *reinterpret_cast<Run<T, Length>*>(image + i) = run;
  }
}

}  // namespace graphc
