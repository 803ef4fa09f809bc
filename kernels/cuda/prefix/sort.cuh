// sort.cuh: sorted elements of rows.
//
// An element becomes an entry (sort_keys.h). Keys of up to 32 bits make one 64-bit number with the
// place, wider ones a pair.
//
// A block sorts tiles of Size entries, a power of two, in shared memory by Batcher's bitonic
// network; entries beyond a row's end come last. A row that fits one tile is then stored. Others
// leave the first Run entries of each tile in the workspace; each further launch merges pairs of
// such runs and keeps the first entries, as many as the result needs. A thread of a merge finds
// where its first entry comes from by a binary search on its diagonal (Odeh, Green, Mwassi, Shmueli
// and Birk, "Merge Path", 2012).
//
// Block: any number of threads. Shared memory: static, Tiles * Size entries of 8 or 16 bytes.
#pragma once
#include "cuda/shared/memory.cuh"

namespace graphc {

using uint32_t = unsigned;
using uint64_t = unsigned long long;

template <class To, class From>
GRAPHC_INLINE To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "one size");
  union Both {
    From from;
    To to;
    GRAPHC_INLINE Both(From from) : from(from) {}
  } both(from);
  return both.to;
}

GRAPHC_INLINE uint32_t bit_of(mask m) { return m.value; }

template <class T, bool Wide = sizeof(T) == 8>
struct Entry {
  uint64_t bits;
  GRAPHC_INLINE static Entry of(uint32_t key, uint32_t low) {
    return {static_cast<uint64_t>(key) << 32 | low};
  }
  GRAPHC_INLINE static Entry last() { return {~0ull}; }
  GRAPHC_INLINE uint32_t key() const { return static_cast<uint32_t>(bits >> 32); }
  GRAPHC_INLINE uint32_t low() const { return static_cast<uint32_t>(bits); }
  GRAPHC_INLINE bool before(const Entry& other) const { return bits < other.bits; }
};
template <class T>
struct alignas(16) Entry<T, true> {
  uint64_t bits, place;
  GRAPHC_INLINE static Entry of(uint64_t key, uint32_t low) { return {key, low}; }
  GRAPHC_INLINE static Entry last() { return {~0ull, ~0ull}; }
  GRAPHC_INLINE uint64_t key() const { return bits; }
  GRAPHC_INLINE uint32_t low() const { return static_cast<uint32_t>(place); }
  GRAPHC_INLINE bool before(const Entry& other) const {
    return bits < other.bits || (bits == other.bits && place < other.place);
  }
};
template <class T>
using Entries = Entry<T>;

}  // namespace graphc
#define GRAPHC_KEYS GRAPHC_INLINE
#include "sort_keys.h"
#undef GRAPHC_KEYS

namespace graphc {

// Sorts the block's Tiles tiles; there is a barrier before the first step and after the last.
template <int Tiles, int Size, class E>
GRAPHC_INLINE void sort_tiles(E* tiles) {
  for (int width = 2; width <= Size; width *= 2) {
    for (int distance = width / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int t = threadIdx.x; t < Tiles * Size / 2; t += blockDim.x) {
        const int i = 2 * t - (t & (distance - 1));
        E &a = tiles[i], &b = tiles[i + distance];
        const bool ascending = (i & (Size - 1) & width) == 0;
        if (b.before(a) == ascending) {
          const E other = a;
          a = b;
          b = other;
        }
      }
    }
  }
  __syncthreads();
}

// The rows' tiles, each of Size places; read(row, j) gives an element, store(tile, j, entry) takes
// the first Kept of each sorted tile.
template <class T, bool Descending, int Rows, int Extent, int PerRow, int Tiles, int Size, int Kept,
          class Read, class Store>
GRAPHC_INLINE void sort_tiles(const Read& read, const Store& store) {
  __shared__ Entry<T> tiles[Tiles * Size];
  const int first = blockIdx.x * Tiles;
  for (int t = threadIdx.x; t < Tiles * Size; t += blockDim.x) {
    const int tile = first + t / Size, row = tile / PerRow, j = tile % PerRow * Size + t % Size;
    tiles[t] = row < Rows && j < Extent ? pack<T, Descending>(read(row, j), j) : Entry<T>::last();
  }
  sort_tiles<Tiles, Size>(tiles);
  for (int t = threadIdx.x; t < Tiles * Kept; t += blockDim.x) {
    const int tile = first + t / Kept;
    if (tile < Rows * PerRow) store(tile, t % Kept, tiles[t / Kept * Size + t % Kept]);
  }
}

// Each row's Runs sorted runs of Run entries become half as many of Next: pairs are merged, of
// which the first Next are kept, by threads of PerThread entries. store(row, run, j, entry).
template <int Rows, int Runs, int Run, int Next, int PerThread, class E, class Store>
GRAPHC_INLINE void merge_runs(const E* runs, const Store& store) {
  constexpr int pairs = (Runs + 1) / 2, threads = (Next + PerThread - 1) / PerThread;
  const long long number = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int row = static_cast<int>(number / threads / pairs);
  if (row >= Rows) return;
  const int pair = static_cast<int>(number / threads % pairs);
  const int first = static_cast<int>(number % threads) * PerThread;
  const E* const a = runs + (static_cast<long long>(row) * Runs + 2 * pair) * Run;
  const E* const b = a + Run;
  const int length = 2 * pair + 1 < Runs ? Run : 0;
  int low = first > length ? first - length : 0, high = first < Run ? first : Run;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (a[middle].before(b[first - 1 - middle])) low = middle + 1;
    else high = middle;
  }
  int i = low, k = first - low;
  for (int j = first; j < first + PerThread && j < Next; j++) {
    const bool left = k >= length || (i < Run && a[i].before(b[k]));
    // A run without a partner may be shorter than what is kept.
    store(row, pair, j, left ? (i < Run ? a[i] : E::last()) : b[k]);
    i += left;
    k += !left;
  }
}

}  // namespace graphc
