// prefix.cuh: running results along Columns elements of each of Rows rows.
//
// A state is what elements have come to: `value`, for extremes also `place`. of(value, place) is that
// of one element, join(a, b) that of a's elements and then b's; it is associative. each(a, b, f) is
// f of each register. A kernel's text has the struct; its registers are whole words, which lanes can
// exchange.
// Threads: a block covers Across rows with Along threads each, 1 or whole warps. A row's threads
// take Along neighbouring columns at a time: lanes join by doubling distances, then a row's warps
// in ascending order, then what came before.
// Pieces: blockIdx.y covers its share of the columns. A first launch stores what each share comes
// to; the second joins those before its own, in ascending order, and goes on from there.
//
// Block: Across * Along threads. Grid: (ceil(Rows / Across), Pieces). Shared memory: static, two
// states per warp where a row has several. Workspace: [Pieces][Rows] states.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

// What a register holds in the warp's last lane, and `distance` lanes below. (NVRTC takes the call
// of a generic lambda for a function of the host.)
struct OfLastLane {
  template <class T>
  GRAPHC_INLINE T operator()(T x, T) const {
    return __shfl_sync(0xffffffffu, x, 31);
  }
};
struct OfLaneBelow {
  int distance;
  template <class T>
  GRAPHC_INLINE T operator()(T x, T) const {
    return __shfl_up_sync(0xffffffffu, x, distance);
  }
};

template <class Index, Index Rows, Index Columns, int Across, int Along, bool Reverse, int Pieces,
          class State>
struct Prefix {
  static constexpr int warps = Along / 32;
  static_assert(Along == 1 || Along % 32 == 0, "whole warps");

  const int across, along;
  const Index place;        // the row's number; may be past the end
  const Index row;          // the row that this thread reads: the last one if it has none
  const Index first, last;  // of the block's share of the columns

  GRAPHC_INLINE Prefix()
      : across(threadIdx.x / Along),
        along(threadIdx.x % Along),
        place(static_cast<Index>(blockIdx.x) * Across + across),
        row(place < Rows ? place : Rows - 1),
        first(static_cast<long long>(Columns) * blockIdx.y / Pieces),
        last(static_cast<long long>(Columns) * (blockIdx.y + 1) / Pieces) {}

  // Stores what the share's elements, read(column), come to.
  template <class Read>
  GRAPHC_INLINE void totals(State* workspace, const Read& read) const {
    const State state = go(State{}, read, [](Index, const State&) {});
    if (along == 0 && place < Rows)
      workspace[static_cast<long long>(blockIdx.y) * Rows + row] = state;
  }
  // Calls write(column, state) for each of the share's columns.
  template <class Read, class Write>
  GRAPHC_INLINE void run(const State* workspace, const Read& read, const Write& write) const {
    State state{};
    if constexpr (Pieces > 1)
      for (unsigned piece = 0; piece < blockIdx.y; piece++)
        state = State::join(state, workspace[static_cast<long long>(piece) * Rows + row]);
    go(state, read, [&](Index column, const State& result) {
      if (place < Rows) write(column, result);
    });
  }

 private:
  template <class Read, class Write>
  GRAPHC_INLINE State go(State carry, const Read& read, const Write& write) const {
    for (Index step = first; step < last; step += Along) {
      const Index column = Reverse ? Columns - 1 - (step + along) : step + along;
      // A thread without a row reads none: the output may lie where the input does.
      const bool exists = step + along < last && place < Rows;
      State state{};
      if (exists) state = State::of(read(column), static_cast<int>(column));
      if constexpr (Along > 1) {
        state = warp(state);
        const State total = State::each(state, state, OfLastLane{});
        if constexpr (warps == 1) {
          state = State::join(carry, state);
          carry = State::join(carry, total);
        } else {
          __shared__ State slots[2][Across * warps];
          State* const mine = slots[(step - first) / Along % 2] + across * warps;
          if (along % 32 == 0) mine[along / 32] = total;
          __syncthreads();
#pragma unroll
          for (int w = 0; w < warps; w++) {
            if (w == along / 32) state = State::join(carry, state);
            carry = State::join(carry, mine[w]);
          }
        }
      } else {
        state = carry = State::join(carry, state);
      }
      if (exists) write(column, state);
    }
    return carry;
  }
  // Each lane joins those before it.
  GRAPHC_INLINE State warp(State state) const {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const State before = State::each(state, state, OfLaneBelow{distance});
      if (along % 32 >= distance) state = State::join(before, state);
    }
    return state;
  }
};

}  // namespace graphc
