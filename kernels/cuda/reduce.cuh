// reduce.cuh: reductions of Columns elements for each of Rows rows, one after another, with
// element-wise work between them. The elements of a stage see the results of the stages before.
//
// A stage is a struct of results with
//   identity()         the results of no elements
//   combine(other)     adds the results of further elements
// Threads: a block covers Across rows with Along threads each, threads of one row adjacent where
// a row's elements are (RowsApart), threads of neighbouring rows adjacent where those are. Each
// thread goes through its row in steps of Along; the block then combines in a fixed order.
// Splits: blockIdx.y covers its share of the columns and stores partial results; the launch of the
// next stage, which knows all partial results, combines them in ascending order.
//
// Block: Across * Along threads. Grid: (ceil(Rows / Across), splits). Shared memory: static,
// sizeof(stage) per thread or warp.
#pragma once
#include "memory.cuh"

namespace graphc {

// Any struct of whole words from the lane whose number differs in `lanes`.
template <class T>
GRAPHC_INLINE T shuffle_xor(T value, int lanes) {
  static_assert(sizeof(T) % 4 == 0, "whole words");
  constexpr int words = sizeof(T) / 4;
  union Words {
    T value;
    unsigned word[words];
    GRAPHC_INLINE Words(T value) : value(value) {}
  } both(value);
#pragma unroll
  for (int i = 0; i < words; i++) both.word[i] = __shfl_xor_sync(0xffffffffu, both.word[i], lanes);
  return both.value;
}

template <class Index, Index Rows, Index Columns, int Across, int Along, bool RowsApart,
          int Splits = 1>
struct Reduce {
  static constexpr int threads = Across * Along;
  static_assert(threads % 32 == 0, "whole warps");
  static_assert(!RowsApart || (Along & (Along - 1)) == 0, "rows are halved");

  const int across, along;
  const Index place;        // the row's number; may be past the end
  const Index row;          // the row that this thread reads: the last one if it has none
  const Index first, last;  // of the block's share of the columns

  GRAPHC_INLINE Reduce()
      : across(RowsApart ? threadIdx.x / Along : threadIdx.x % Across),
        along(RowsApart ? threadIdx.x % Along : threadIdx.x / Across),
        place(static_cast<Index>(blockIdx.x) * Across + across),
        row(place < Rows ? place : Rows - 1),
        first(static_cast<long long>(Columns) * blockIdx.y / Splits),
        last(static_cast<long long>(Columns) * (blockIdx.y + 1) / Splits) {}

  GRAPHC_INLINE bool exists() const { return place < Rows; }
  // Whether this thread is the one that stores what there is once per row and split.
  GRAPHC_INLINE bool first_of_row() const { return exists() && along == 0; }
  // Whether it is the one that stores what there is once per row.
  GRAPHC_INLINE bool stores() const { return first_of_row() && blockIdx.y == 0; }

  // Calls body(column) for this thread's columns of its row.
  template <class Body>
  GRAPHC_INLINE void each(const Body& body) const {
    if (!exists()) return;
#pragma unroll 4
    for (Index column = first + along; column < last; column += Along) body(column);
  }

  // Calls body(column, load(column)) for this thread's columns of its row, four loads before the
  // first of their bodies: outputs may lie where inputs do, so that the compiler would not move a
  // load before an earlier store.
  template <class Load, class Body>
  GRAPHC_INLINE void each(const Load& load, const Body& body) const {
    if (!exists()) return;
    Index column = first + along;
    for (; column + 3 * Along < last; column += 4 * Along) {
      decltype(load(column)) loaded[4];
#pragma unroll
      for (int j = 0; j < 4; j++) loaded[j] = load(column + j * Along);
#pragma unroll
      for (int j = 0; j < 4; j++) body(column + j * Along, loaded[j]);
    }
    for (; column < last; column += Along) body(column, load(column));
  }

  // The results of all elements of the row's share, known to each of the row's threads;
  // body(column, results) combines one element into results.
  template <class Stage, class Body>
  GRAPHC_INLINE Stage reduce(const Body& body) const {
    Stage results = Stage::identity();
    each([&](Index column) { body(column, results); });
    if constexpr (Along == 1) return results;
    else if constexpr (RowsApart) return combine_adjacent(results);
    else return combine_apart(results);
  }

  // Stores the share's results as partial ones: workspace[split][row].
  template <class Stage>
  GRAPHC_INLINE void store_partial(Stage* workspace, const Stage& results) const {
    if (first_of_row()) workspace[static_cast<long long>(blockIdx.y) * Rows + row] = results;
  }
  // Combines the partial results of all splits.
  template <class Stage>
  GRAPHC_INLINE Stage combine_partial(const Stage* workspace) const {
    Stage results = Stage::identity();
#pragma unroll 8
    for (int split = 0; split < Splits; split++)
      results.combine(workspace[static_cast<long long>(split) * Rows + row]);
    return results;
  }

 private:
  // Lanes by halving distances, then the row's warps in ascending order. A kernel reduces a type of
  // stage once: its slots are not used again.
  template <class Stage>
  GRAPHC_INLINE Stage combine_adjacent(Stage results) const {
#pragma unroll
    for (int lanes = 1; lanes < (Along < 32 ? Along : 32); lanes *= 2)
      results.combine(shuffle_xor(results, lanes));
    if constexpr (Along > 32) {
      constexpr int warps = Along / 32;
      __shared__ Stage slots[Across * warps];
      if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = results;
      __syncthreads();
      results = slots[across * warps];
#pragma unroll
      for (int warp = 1; warp < warps; warp++) results.combine(slots[across * warps + warp]);
    }
    return results;
  }
  // The row's threads in ascending order.
  template <class Stage>
  GRAPHC_INLINE Stage combine_apart(Stage results) const {
    __shared__ Stage slots[threads];
    slots[threadIdx.x] = results;
    __syncthreads();
    results = slots[across];
#pragma unroll
    for (int i = 1; i < Along; i++) results.combine(slots[i * Across + across]);
    return results;
  }
};

}  // namespace graphc
