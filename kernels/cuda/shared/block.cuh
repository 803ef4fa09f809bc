// block.cuh: the block whose work a template does: a block of its own launch, or one that the
// blocks of a joined launch run, in which several launches are one.
//
// Both have threads(), whole warps; x() and y(), the block's place in its grid; sync(), a barrier of
// its threads; and shared<T, Count>(), memory of the block for Count values of T, of which a template
// asks for one at a time. `holds` says whether there is `held`, which a template has made before a
// loop in place of reading the same in each iteration, `near` whether its rows of arguments are in
// shared memory. `parts` > 1 blocks, of a cluster, compute one tile (cluster_sums.cuh); or the last
// of several that compute one, which it knows as it `draws` a ticket (tickets.cuh), adds what all
// have.
#pragma once
#include "cuda/shared/intrinsics.cuh"

namespace graphc {

// A block of a launch.
struct WholeBlock {
  static constexpr bool holds = false, draws = false, near = false;
  static constexpr int parts = 1;
  GRAPHC_INLINE static int threads() { return blockDim.x; }
  GRAPHC_INLINE static int x() { return blockIdx.x; }
  GRAPHC_INLINE static int y() { return blockIdx.y; }
  GRAPHC_INLINE static void sync(GRAPHC_CALLED_ALONE) {
#ifdef GRAPHC_SIM
    __syncthreads(file, line);
#else
    __syncthreads();
#endif
  }
  template <class T, int Count>
  GRAPHC_INLINE static T* shared(GRAPHC_CALLED_ALONE) {
    __shared__ __align__(16) T slots[Count];
    return slots;
  }
};

// A block of Threads threads and at most Bytes of shared memory, played by the first threads of a
// block of a joined launch. The memory is that of all parts in turn: sync() lies before each use.
template <int Threads, int Bytes>
struct PartBlock {
  static constexpr bool holds = false, draws = false, near = false;
  static constexpr int parts = 1, bytes = Bytes;
  unsigned char* memory;
  int column, row;

  GRAPHC_INLINE static constexpr int threads() { return Threads; }
  GRAPHC_INLINE int x() const { return column; }
  GRAPHC_INLINE int y() const { return row; }
  GRAPHC_INLINE static void sync(GRAPHC_CALLED_ALONE) {
#ifdef GRAPHC_SIM
    graphc_sim_part_barrier(Threads, file, line);
#else
    part_barrier<Threads>();
#endif
  }
  template <class T, int Count>
  GRAPHC_INLINE T* shared(GRAPHC_CALLED_ALONE) const {
    static_assert(sizeof(T) * Count <= Bytes, "the launch has that much shared memory");
#ifdef GRAPHC_SIM
    sync(file, line);
#else
    sync();
#endif
    return reinterpret_cast<T*>(memory);
  }
};

// A block that holds what a part would read in each iteration of a loop.
template <class Block, class Held>
struct HoldingBlock : Block {
  static constexpr bool holds = true;
  const Held& held;
  GRAPHC_INLINE HoldingBlock(const Block& block, const Held& held) : Block(block), held(held) {}
};

// A block whose own rows of arguments are in shared memory (shared_staging.cuh), and which has passed a barrier
// before it plays a part.
template <class Block>
struct NearBlock : Block {
  static constexpr bool near = true;
  GRAPHC_INLINE NearBlock(const Block& block) : Block(block) {}
  template <class T, int Count>
  GRAPHC_INLINE T* shared(GRAPHC_CALLED_ALONE) const {
    static_assert(sizeof(T) * Count <= Block::bytes, "the launch has that much shared memory");
    return reinterpret_cast<T*>(this->memory);
  }
};

// An argument of a joined launch: where the values of a part begin.
struct Argument {
  unsigned char* at;
  template <class T>
  GRAPHC_INLINE operator T*() const {
    return reinterpret_cast<T*>(at);
  }
};

// A part that copies `count` bytes, Size of them per thread at once, from one array to another.
template <int Size, class Block>
GRAPHC_INLINE void copy_part(const Block& block, Argument from, Argument to, long long count) {
  struct alignas(Size) Bytes {
    unsigned char at[Size];
  };
  const long long i = static_cast<long long>(block.x()) * block.threads() + threadIdx.x;
  if (i * Size < count) static_cast<Bytes*>(to)[i] = static_cast<const Bytes*>(from)[i];
}

// Plays a part of Columns x Rows blocks: work(block) is what the threads of each of them do. The
// blocks of the launch take them in turn, the one of number `first` taking the first.
template <int Threads, int Bytes, int Columns, int Rows, class Work>
GRAPHC_INLINE void play(unsigned first, unsigned char* memory, const Work& work) {
  if (Threads < 256 && threadIdx.x >= Threads) return;  // of 256, which a joined launch has
  const unsigned begin = first % gridDim.x, block = block_anew();
  const unsigned mine = block < begin ? block + gridDim.x - begin : block - begin;
  for (unsigned i = mine; i < Columns * Rows; i += gridDim.x)
    work(PartBlock<Threads, Bytes>{memory, static_cast<int>(i % Columns),
                                   static_cast<int>(i / Columns)});
}

// Plays one of a part's blocks, in rows of Columns: work(block) is what its threads do, the first of
// those of the launch, whose blocks are those of several parts, one part behind the other.
template <int Threads, int Bytes, int Columns, class Work>
GRAPHC_INLINE void play_one(unsigned number, unsigned char* memory, const Work& work) {
  if (threadIdx.x >= Threads) return;
  work(PartBlock<Threads, Bytes>{memory, static_cast<int>(number % Columns),
                                 static_cast<int>(number / Columns)});
}

}  // namespace graphc
