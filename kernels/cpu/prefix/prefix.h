// prefix: running results along one axis.
//
// A state holds what a register's worth of elements have come to: `value`, for extremes also `place`. of(value, place) is that of one
// element, join(a, b) is the state of
// a's elements and then b's; it is associative. each(a, b, f) is f of each register. A kernel's text has the struct. Where the lanes hold neighbouring rows, each step joins one register to the state.
// Where they lie along the axis, a block of 16 elements is first scanned by itself, in joins of copies shifted by 1, 2, 4 and 8 that
// no other block waits for, and then joined to the carry; 16 / W registers are a block.
//
// `Kept` is the domain of the rows (see pointwise.h). A strip is U registers of neighbouring rows, so that each step reads a long
// run of memory. A long axis is cut into PIECES, each scanned by itself and then joined to what those before it come to. Where strips
// are too few to make chunks, pieces are CHUNKS: phase 0 stores what each comes to, phase 1 joins those before its own.
//
// The order is that of `graphc.ops.prefix`, whatever W and the chunks.
#pragma once
#include "cpu/pointwise/pointwise.h"
#include "cpu/shared/transpose.h"

namespace graphc {
// A register S lanes further on, which continues in `beside`.
template <bool REVERSE, int S, class V, int... L> INLINE V shifted(V v, V beside, Lanes<L...>) {
  return shuffle(v, beside, Lanes<(REVERSE ? L + S : L >= S ? L - S : 2 * W + L - S)...>{});
}
template <int FROM, class V, int... L> INLINE V repeated(V v, Lanes<L...>) {
  return shuffle(v, v, Lanes<(L * 0 + FROM)...>{});
}

#if GRAPHC_LANES == 16
using BlockRegisters = Lanes<0>;
#elif GRAPHC_LANES == 8
using BlockRegisters = Lanes<0, 1>;
#else
using BlockRegisters = Lanes<0, 1, 2, 3>;
#endif

template <class Body, int... R> INLINE void each_register(const Body& body, Lanes<R...>) {
  (body.template operator()<R>(), ...);
}

// Each lane of a block of SIZE lanes joins those before it, at the distances S, 2 S, ...
template <bool REVERSE, int SIZE, int S, int N, class State>
INLINE void scan_block(State (&block)[N]) {
  if constexpr (S < SIZE) {
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      const int to = REVERSE ? n : N - 1 - n, left = N - 1 - n;
      if constexpr (S >= W) {
        const int from = REVERSE ? to + S / W : to - S / W;
        if (left >= S / W) block[to] = State::join(block[from], block[to]);
      } else {
        const State beside = left > 0 ? block[REVERSE ? to + 1 : to - 1] : State{};
        block[to] = State::join(State::each(block[to], beside,
                                            [](auto v, auto next) __attribute__((always_inline)) {
                                              return shifted<REVERSE, S>(v, next, AllLanes{});
                                            }),
                                block[to]);
      }
    }
    scan_block<REVERSE, SIZE, 2 * S>(block);
  }
}

// Steps [begin, end) of U registers of rows.
template <class State, bool REVERSE, long EXTENT, int U, class Element, class Write>
INLINE void down(long begin, long end, State (&states)[U], const Element& read,
                 const Write& write) {
  for (long step = begin; step < end; step++) {
    const long j = REVERSE ? EXTENT - 1 - step : step;
#pragma GCC unroll 16
    for (int u = 0; u < U; u++) {
      states[u] = State::join(states[u], State::of(read(u, j), splat(int32_t(j))));
      write(u, j, states[u]);
    }
  }
}

// Of a block of an axis: a power of two.
template <long EXTENT>
constexpr int LANES_USED = EXTENT > 8   ? 16
                           : EXTENT > 4 ? 8
                           : EXTENT > 2 ? 4
                           : EXTENT > 1 ? 2
                                        : 1;

// Steps [begin, end) of one row, whose elements lie in the lanes, a block at a time.
template <class State, bool REVERSE, long EXTENT, class Element, class Write>
INLINE void along(long begin, long end, State& carry, const Element& read, const Write& write) {
  constexpr long full = EXTENT / 16, all = (EXTENT + 15) / 16;
  constexpr int rest = EXTENT % 16;
  constexpr int size = LANES_USED<EXTENT>;
  constexpr int registers = most(size / W, 1);
  auto step = [&]<int M>(long j) __attribute__((always_inline)) {
    State block[registers];
    auto get = [&]<int R>() __attribute__((always_inline)) {
      constexpr int live = least(M - R * W, W);
      if constexpr (R < registers && live > 0) {
        block[R] = State::of(read.template operator()<live>(j + R * W),
                             splat(int32_t(j + R * W)) + lanes());
        block[R] = State::each(block[R], State{},
                               [](auto v, auto none)
                                   __attribute__((always_inline)) { return keep<live>(v, none); });
      }
    };
    auto put = [&]<int R>() __attribute__((always_inline)) {
      constexpr int live = least(M - R * W, W);
      if constexpr (R < registers) block[R] = State::join(carry, block[R]);
      if constexpr (R < registers && live > 0) write.template operator()<live>(j + R * W, block[R]);
    };
    each_register(get, BlockRegisters{});
    scan_block<REVERSE, size, 1>(block);
    each_register(put, BlockRegisters{});
    const State& last = block[REVERSE ? 0 : registers - 1];
    carry = State::each(last, last, [](auto v, auto) __attribute__((always_inline)) {
      return repeated<REVERSE ? 0 : (LANES_USED<EXTENT> - 1) % W>(v, AllLanes{});
    });
  };
  if constexpr (REVERSE) {
    if (rest && begin == 0 && end > 0) step.template operator()<rest ? rest : 16>(full * 16);
    for (long s = most(begin, rest ? 1 : 0); s < end; s++)
      step.template operator()<16>((all - 1 - s) * 16);
  } else {
    for (long s = begin; s < least(end, full); s++) step.template operator()<16>(s * 16);
    if (rest && end > full && begin <= full) step.template operator()<rest ? rest : 16>(full * 16);
  }
}

// Body<U, N>(i, r, number) for the registers of strips [begin, end): U of them from index r of the last kept axis on, N of whose
// lanes are live; `number` counts registers.
template <class Kept, int U, class Body> INLINE void strips(long begin, long end,
                                                            const Body& body) {
  constexpr int last = Kept::RANK - 1, width = Kept::LANE < 0 ? 1 : W;
  constexpr long extent = Kept::EXTENT[last],
                 length = most((extent + U * width - 1) / (U * width), 1);
  for (long strip = begin; strip < end; strip++) {
    long i[Kept::RANK], outer = strip / length, r = strip % length * U * width, number = strip * U;
    for (int d = last - 1; d >= 0; d--) {
      i[d] = outer % most(Kept::EXTENT[d], 1);
      outer /= most(Kept::EXTENT[d], 1);
    }
    if constexpr (Kept::LANE < 0) body.template operator()<1, W>(i, r, number);
    else {
      if (r + U * W <= extent) {
        body.template operator()<U, W>(i, r, number);
        continue;
      }
      for (; r + W <= extent; r += W) body.template operator()<1, W>(i, r, number++);
      if constexpr (extent % W != 0) body.template operator()<1, extent % W>(i, r, number);
    }
  }
}

// Unit: a strip, or a piece of one. read<M>(i, r, j) gives a register of elements, write<M>(i, r, j, state) stores one.
template <class Kept, class State, bool REVERSE, long EXTENT, int U, int PIECES, bool CHUNKS,
          class Read, class Write>
INLINE void prefix(long begin, long end, int phase, long piece, char* workspace, const Read& read,
                   const Write& write) {
  constexpr bool in_lanes = Kept::LANE < 0;
  constexpr long total = in_lanes ? (EXTENT + 15) / 16 : EXTENT;
  strips<Kept, U>(
      begin, end,
      [&]<int R, int N>(const long* i, long r, long number) __attribute__((always_inline)) {
        State before[R];
        State* const partials = (State*)workspace + number * PIECES;
        // What piece p comes to, by itself.
        auto run = [&](long p, State(&states)[R],
                       const auto& store) __attribute__((always_inline)) {
          const long first = total * p / PIECES, stop = total * (p + 1) / PIECES;
          if constexpr (in_lanes)
            along<State, REVERSE, EXTENT>(
                first, stop, states[0],
                [&]<int M>(long j)
                    __attribute__((always_inline)) { return read.template operator()<M>(i, r, j); },
                [&]<int M>(long j, const State& s)
                    __attribute__((always_inline)) { store.template operator()<M>(0, j, s); });
          else
            down<State, REVERSE, EXTENT>(
                first, stop, states,
                [&](int u, long j) __attribute__((always_inline)) {
                  return read.template operator()<N>(i, r + u * W, j);
                },
                [&](int u, long j, const State& s)
                    __attribute__((always_inline)) { store.template operator()<N>(u, j, s); });
        };
        if (CHUNKS && phase == 0) {
          State states[R];
          run(piece, states, []<int M>(int, long, const State&) __attribute__((always_inline)) {});
          for (int u = 0; u < R; u++)
            __builtin_memcpy(partials + u * PIECES + piece, states + u, sizeof(State));
          return;
        }
        for (int u = 0; u < R; u++)
          for (long p = 0; p < (CHUNKS ? piece : 0); p++) {
            State part;
            __builtin_memcpy(&part, partials + u * PIECES + p, sizeof part);
            before[u] = State::join(before[u], part);
          }
        for (long p = CHUNKS ? piece : 0; p < (CHUNKS ? piece + 1 : PIECES); p++) {
          State states[R];
          run(p, states, [&]<int M>(int u, long j, const State& s) __attribute__((always_inline)) {
            write.template operator()<M>(i, r + u * W, j,
                                         PIECES > 1 ? State::join(before[u], s) : s);
          });
          if constexpr (PIECES > 1 && !CHUNKS)
            for (int u = 0; u < R; u++) before[u] = State::join(before[u], states[u]);
        }
      });
}
}  // namespace graphc
