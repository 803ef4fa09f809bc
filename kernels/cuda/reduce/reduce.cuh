// reduce.cuh: reductions of Columns elements of each of Rows rows, one after another, with
// element-wise work in between. A stage sees the results of the stages before it.
//
// A stage is a struct of results with
//   identity()         the results of no elements
//   combine(other)     adds the results of further elements
// Threads: a block covers some rows with Along threads each, threads of one row adjacent where a
// row's elements are (RowsApart), threads of neighbouring rows adjacent where those are. Elements
// move in runs of Length neighbours, which are columns of one row (RowsApart) or rows at one column;
// Length divides their number. A thread goes through its row, or its run of rows, in steps of Along
// runs or columns; the block then combines in a fixed order.
// Held: where rows are short, a thread loads all that it needs of its row before the first stage, or
// nearly all. Else each loop loads a few runs ahead of their bodies: outputs may lie where inputs do, so that
// the compiler would not move a load before an earlier store.
// Splits: the block's y covers its share of the columns and stores partial results; the launch of the
// next stage, which knows all partial results, combines them in a fixed order.
//
// Block: Across * Along threads. Grid: (ceil(rows or runs of rows / Across), splits). Shared memory:
// static, for each stage its size per row, or Length rows, and warp (or thread, of 32 rows and more).
#pragma once
#include "cuda/reduce/one_pass_variance.cuh"
#include "cuda/shared/memory.cuh"

namespace graphc {

// The results of N neighbouring rows: a multiple of four whole words.
template <class Stage, int N>
struct alignas(16) Several {
  Stage at[N];
  GRAPHC_INLINE static Several identity() {
    Several results;
#pragma unroll
    for (int i = 0; i < N; i++) results.at[i] = Stage::identity();
    return results;
  }
  GRAPHC_INLINE void combine(const Several& other) {
#pragma unroll
    for (int i = 0; i < N; i++) at[i].combine(other.at[i]);
  }
};

// A struct as what is moved at once.
template <class T>
union Pieces {
  struct alignas(alignof(T)) Piece {
    unsigned char at[alignof(T)];
  };
  static constexpr int count = sizeof(T) / sizeof(Piece);
  T whole;
  Piece at[count];
  GRAPHC_INLINE Pieces() {}
  GRAPHC_INLINE explicit Pieces(const T& whole) : whole(whole) {}
};

// What a thread keeps of its row: what it loads in the first Own of its steps, in registers, and in
// the next Shared ones, in places of its own in `memory`, where threads that are neighbours have
// neighbouring pieces.
template <class Loads, int Own, int Shared, int Threads>
struct Held {
  Loads own[Own];
  unsigned char* memory;

  GRAPHC_INLINE void share(int step, const Loads& loads) {
    const Pieces<Loads> pieces(loads);
#pragma unroll
    for (int i = 0; i < pieces.count; i++) *piece(step, i) = pieces.at[i];
  }
  GRAPHC_INLINE Loads shared(int step) const {
    Pieces<Loads> pieces;
#pragma unroll
    for (int i = 0; i < pieces.count; i++) pieces.at[i] = *piece(step, i);
    return pieces.whole;
  }

 private:
  GRAPHC_INLINE auto* piece(int step, int number) const {
    const int line = step * Pieces<Loads>::count + number;
    return reinterpret_cast<typename Pieces<Loads>::Piece*>(memory) + line * Threads + threadIdx.x;
  }
};

template <class Block, class Index, Index Rows, Index Columns, int Across, int Along,
          bool RowsApart, int Splits = 1, int Length = 1>
struct Reduce {
  static constexpr int threads = Across * Along;
  static constexpr bool rows_apart = RowsApart;
  static_assert(threads % 32 == 0, "whole warps");
  static_assert(!RowsApart || (Along & (Along - 1)) == 0, "rows are halved");
  static_assert((RowsApart ? Columns : Rows) % Length == 0, "whole runs");

  static constexpr int columns_at_once = RowsApart ? Length : 1;
  static constexpr int rows_at_once = RowsApart ? 1 : Length;
  static constexpr Index steps = Columns / columns_at_once;  // of all threads of a row
  static constexpr Index places = Rows / rows_at_once;
  static constexpr int held = static_cast<int>((steps + Along - 1) / Along);  // of one thread

  const Block& block;
  const int across, along;
  const Index place;        // the number of the row, or run of rows; may be past the end
  const Index row;          // the first row that this thread reads: the last ones if it has none
  const Index first, last;  // of the block's share of the steps

  GRAPHC_INLINE explicit Reduce(const Block& block)
      : block(block),
        across(RowsApart ? threadIdx.x / Along : threadIdx.x % Across),
        along(RowsApart ? threadIdx.x % Along : threadIdx.x / Across),
        place(static_cast<Index>(block.x()) * Across + across),
        row((place < places ? place : places - 1) * rows_at_once),
        first(static_cast<long long>(steps) * block.y() / Splits),
        last(static_cast<long long>(steps) * (block.y() + 1) / Splits) {}

  GRAPHC_INLINE bool exists() const { return places % Across == 0 || place < places; }
  // Whether this thread is the one that stores what there is once per row and split.
  GRAPHC_INLINE bool first_of_row() const { return exists() && along == 0; }
  // Whether it is the one that stores what there is once per row.
  GRAPHC_INLINE bool stores() const { return first_of_row() && block.y() == 0; }

  // Calls body(column, load(column)) for this thread's columns of its row, Ahead loads before the
  // first of their bodies.
  template <int Ahead, class Load, class Body>
  GRAPHC_INLINE void each(const Load& load, const Body& body) const {
    if (!exists()) return;
    Index step = first + along;
    for (; step + (Ahead - 1) * Along < last; step += Ahead * Along) some<Ahead>(step, load, body);
    if constexpr (Ahead > 1) {
      if (step < last) some<Ahead - 1, true>(step, load, body);
    }
  }

  // Loads load(column) of what is kept of this thread's columns.
  template <class Loads, int Own, int Shared, class Load>
  GRAPHC_INLINE void hold(Held<Loads, Own, Shared, threads>& kept, const Load& load) const {
    constexpr int batch = 4;
#pragma unroll 1
    for (int j = Own; j < Own + Shared; j += batch) {
      Loads loaded[batch];
#pragma unroll
      for (int i = 0; i < batch; i++)
        if (j + i < Own + Shared && has(j + i)) loaded[i] = load(held_column(j + i));
#pragma unroll
      for (int i = 0; i < batch; i++)
        if (j + i < Own + Shared && has(j + i)) kept.share(j + i - Own, loaded[i]);
    }
#pragma unroll
    for (int j = 0; j < Own; j++)
      if (has(j)) kept.own[j] = load(held_column(j));
  }
  // Calls body(column, loads) for all of them; load(column) of those that are not kept.
  template <class Loads, int Own, int Shared, class Load, class Body>
  GRAPHC_INLINE void each(const Held<Loads, Own, Shared, threads>& kept, const Load& load,
                          const Body& body) const {
#pragma unroll
    for (int j = 0; j < Own; j++)
      if (has(j)) body(held_column(j), kept.own[j]);
#pragma unroll 1
    for (int j = Own; j < Own + Shared; j++)
      if (has(j)) body(held_column(j), kept.shared(j - Own));
    if constexpr (Own + Shared < held) {
#pragma unroll 2
      for (int j = Own + Shared; j < held; j++)
        if (has(j)) body(held_column(j), load(held_column(j)));
    }
  }

  // The results of all elements of the row's share, known to each of the row's threads;
  // body(column, loads, results) combines a run into results, which are a Stage, or Several.
  template <class Results, int Ahead, class Load, class Body>
  GRAPHC_INLINE Results reduce(const Load& load, const Body& body) const {
    Results results = Results::identity();
    each<Ahead>(load, [&](Index column, const auto& loads) { body(column, loads, results); });
    return combined(results);
  }
  template <class Results, class Kept, class Load, class Body>
  GRAPHC_INLINE Results reduce(const Kept& kept, const Load& load, const Body& body) const {
    Results results = Results::identity();
    each(kept, load, [&](Index column, const auto& loads) { body(column, loads, results); });
    return combined(results);
  }

  // Stores the share's results as partial ones: workspace[split][piece][row], in pieces of 16 bytes
  // where those of a run of rows are, so that threads of neighbouring rows move neighbours.
  template <class Results>
  GRAPHC_INLINE void store_partial(unsigned char* workspace, const Results& results) const {
    if (!first_of_row()) return;
    const Pieces<Results> own(results);
#pragma unroll
    for (int i = 0; i < own.count; i++) *piece<Results>(workspace, block.y(), i) = own.at[i];
  }
  // The only partial results of the row.
  template <class Results>
  GRAPHC_INLINE Results load_partial(unsigned char* workspace) const {
    Pieces<Results> own(Results::identity());
#pragma unroll
    for (int i = 0; i < own.count; i++)
      if (exists()) own.at[i] = *piece<Results>(workspace, 0, i);
    return own.whole;
  }
  // Combines the partial results of all splits, or of so many `parts`; each thread of a row adds some
  // of them.
  template <class Results>
  GRAPHC_INLINE Results combine_partial(unsigned char* workspace, int parts = Splits) const {
    Results results = Results::identity();
    if (exists()) {
#pragma unroll 8
      for (int split = along; split < parts; split += Along) {
        Pieces<Results> own;
#pragma unroll
        for (int i = 0; i < own.count; i++) own.at[i] = *piece<Results>(workspace, split, i);
        results.combine(own.whole);
      }
    }
    return combined(results);
  }

 private:
  template <class Results>
  GRAPHC_INLINE auto* piece(unsigned char* workspace, int split, int number) const {
    using Piece = typename Pieces<Results>::Piece;
    const auto line = static_cast<long long>(split) * Pieces<Results>::count + number;
    return reinterpret_cast<Piece*>(workspace) + line * places + place;
  }

  // Whether this thread has a j-th run of its row, and the first column of it.
  GRAPHC_INLINE bool has(int j) const {
    return exists() && (steps % Along == 0 || along + j * Along < steps);
  }
  GRAPHC_INLINE Index held_column(int j) const {
    return static_cast<Index>(along + j * Along) * columns_at_once;
  }

  // Calls body(column, load(column)) for Count steps from `step` on, those that there are if not
  // all of them need to be.
  template <int Count, bool Guarded = false, class Load, class Body>
  GRAPHC_INLINE void some(Index step, const Load& load, const Body& body) const {
    decltype(load(step)) loaded[Count];
#pragma unroll
    for (int j = 0; j < Count; j++)
      if (!Guarded || step + j * Along < last)
        loaded[j] = load((step + j * Along) * columns_at_once);
#pragma unroll
    for (int j = 0; j < Count; j++)
      if (!Guarded || step + j * Along < last)
        body((step + j * Along) * columns_at_once, loaded[j]);
  }

  template <class Results>
  GRAPHC_INLINE Results combined(const Results& results) const {
    if constexpr (Along == 1) return results;
    else if constexpr (RowsApart) return combine_adjacent(results);
    else return combine_apart(results);
  }

  // Lanes by halving distances, then the row's warps in ascending order. A kernel reduces a type of
  // stage once: its slots are not used again.
  template <class Stage>
  GRAPHC_INLINE Stage combine_adjacent(Stage results) const {
#pragma unroll
    for (int lanes = 1; lanes < (Along < 32 ? Along : 32); lanes *= 2)
      results.combine(shuffle_xor(results, lanes));
    if constexpr (Along > 32) {
      constexpr int warps = Along / 32;
      Stage* const slots = block.template shared<Stage, Across * warps>();
      if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = results;
      block.sync();
      results = slots[across * warps];
#pragma unroll
      for (int warp = 1; warp < warps; warp++) results.combine(slots[across * warps + warp]);
    }
    return results;
  }
  // The lanes of a row by growing distances, then the row's warps in ascending order; of many warps
  // a few add some each before.
  template <class Stage>
  GRAPHC_INLINE Stage combine_apart(Stage results) const {
    static_assert(Across >= 32 || 32 % Across == 0, "as many lanes for each row");
    constexpr int lanes = Across < 32 && Along >= 32 / Across ? 32 / Across : 1;
    constexpr int groups = Along / lanes, fewer = groups > 8 ? groups / lanes : groups;
    constexpr int second = groups > fewer ? groups * Across : 0;  // where the sums of a few begin
    results = combine_lanes<lanes>(results);
    Stage* const slots = block.template shared<Stage, second + fewer * Across>();
    if (along % lanes == 0) slots[along / lanes * Across + across] = results;
    block.sync();
    if constexpr (second > 0) {
      static_assert(groups % lanes == 0 && second % 32 == 0, "whole warps add");
      if (threadIdx.x < second) {
        results = combine_lanes<lanes>(slots[threadIdx.x]);
        if (along % lanes == 0) slots[second + along / lanes * Across + across] = results;
      }
      block.sync();
    }
    results = slots[second + across];
#pragma unroll
    for (int i = 1; i < fewer; i++) results.combine(slots[second + i * Across + across]);
    return results;
  }
  template <int Lanes, class Stage>
  GRAPHC_INLINE Stage combine_lanes(Stage results) const {
#pragma unroll
    for (int distance = 1; distance < Lanes; distance *= 2)
      results.combine(shuffle_xor(results, distance * Across));
    return results;
  }
};

}  // namespace graphc
