// shared_staging.cuh: a block's own rows of the arguments of a loop, in shared memory. A line, the
// block's share of one argument, moves 16 bytes at a time: while an iteration computes, the inputs
// of the next are loaded and the results of the last are stored. Values that pass from one
// iteration to the next are read in place, so that none waits for memory.
//
// A line has two slots, one behind the other, of which iteration t has number t % 2. Neither
// is filled before the barrier behind its last reader.
//
// Block: 256 threads, of which each moves the same sixteen bytes of the same line in all iterations, or
// nothing. Shared memory: two slots of each line.
#pragma once
#include "cuda/contract/tiles/loader.cuh"

namespace graphc {

// When a line moves: an iteration ahead of the one that reads it, an iteration behind the one that made
// it, before the loop, to be read in its first iteration, or behind the last.
enum class Moves { ahead, behind, before, after };

// The line of an argument of which each block has `bytes`, `apart` from those of the block before it:
// 0 where all have the same. That of block 0 begins at `at` in the first iteration, and `step` bytes
// further in each; its first slot begins at `slot`. All are multiples of 16.
struct Line {
  Moves moves;
  unsigned char* at;
  int step, bytes, apart, slot;
};

// Sixteen bytes of a line.
struct Sixteen {
  unsigned char* at = nullptr;
  int step = 0, bytes = 0, slot = 0;

  // Whether there is number `i` of those of the lines of a block that move so, which it then is.
  template <int Count>
  GRAPHC_INLINE bool find(const Line (&lines)[Count], Moves moves, int i, int block) {
    bool found = false;
#pragma unroll
    for (const Line& line : lines) {
      if (line.moves != moves) continue;
      if (i >= 0 && i < line.bytes / 16) {
        at = line.at + static_cast<long long>(block) * line.apart + i * 16;
        step = line.step, bytes = line.bytes, slot = line.slot + i * 16;
        found = true;
      }
      i -= line.bytes / 16;
    }
    return found;
  }
};

// The lines of a block in `count` iterations, of which Ahead and Behind sixteens move in each.
template <int Ahead, int Behind>
struct Near {
  static constexpr int threads = 256, first = ceil_div(Ahead, 32) * 32;  // warps move one way each
  static constexpr int all = first + Behind, each = ceil_div(all, threads);
  unsigned char* const memory;
  const int block, count;
  Sixteen mine[each];
  int ahead[each], behind[each];

  template <int Count>
  GRAPHC_INLINE Near(unsigned char* memory, const Line (&lines)[Count], int block, int count)
      : memory(memory), block(block), count(count) {
    __syncthreads();
    Sixteen line;
    for (int i = threadIdx.x; line.find(lines, Moves::before, i, block); i += threads)
      copy_async<16>(memory + line.slot + line.bytes, line.at, 16);
#pragma unroll
    for (int e = 0; e < each; e++) {
      const int i = (e - each) * threads + all + threadIdx.x;  // the first have most of the parts
      ahead[e] = unknown(i < first && mine[e].find(lines, Moves::ahead, i, block));
      behind[e] = unknown(mine[e].find(lines, Moves::behind, i - first, block));
    }
    fetch(0);
  }
  // Plays a part by the first Threads threads: work(block) is what they do, with so many bytes of
  // shared memory.
  template <int Threads, int Bytes, class Work>
  GRAPHC_INLINE void play(unsigned char* shared, const Work& work) const {
    if (Threads < threads && threadIdx.x >= Threads) return;
    work(PartBlock<Threads, Bytes>{shared, block, 0});
  }
  // Begins iteration t, whose lines have come.
  GRAPHC_INLINE void begin(int t) {
    copy_wait<0>();
    __syncthreads();
    if (t + 1 < count) fetch(t + 1);
    if (t > 0) store(t - 1);
  }
  template <int Count>
  GRAPHC_INLINE void end(const Line (&lines)[Count]) {
    __syncthreads();
    store(count - 1);
    Sixteen line;
    for (int i = threadIdx.x; line.find(lines, Moves::after, i, block); i += threads)
      copy(line.at, memory + line.slot + ((count - 1) & 1) * line.bytes);
  }
  // The argument of which the block has a line of so many bytes at `slot`, in iteration t: where that
  // of block 0 would be, as blocks look for theirs.
  GRAPHC_INLINE Argument line(int slot, int bytes, int t) const {
    return {memory + slot + (t & 1) * bytes - block * bytes};
  }

  // An argument that all blocks have whole, which came before the loop.
  GRAPHC_INLINE Argument whole(int slot, int bytes) const { return {memory + slot + bytes}; }

 private:
  GRAPHC_INLINE void fetch(int t) {
#pragma unroll
    for (int e = 0; e < each; e++)
#pragma unroll 1
      for (int i = 0; i < ahead[e]; i++, mine[e].at += mine[e].step)
        copy_async<16>(memory + mine[e].slot + (t & 1) * mine[e].bytes, mine[e].at, 16);
    copy_commit();
  }
  GRAPHC_INLINE void store(int t) {
#pragma unroll
    for (int e = 0; e < each; e++)
#pragma unroll 1
      for (int i = 0; i < behind[e]; i++, mine[e].at += mine[e].step)
        copy(mine[e].at, memory + mine[e].slot + (t & 1) * mine[e].bytes);
  }
  GRAPHC_INLINE static void copy(unsigned char* to, const unsigned char* from) {
    using Bytes = Run<unsigned, 4>;
    *reinterpret_cast<Bytes*>(to) = *reinterpret_cast<const Bytes*>(from);
  }
};

}  // namespace graphc
