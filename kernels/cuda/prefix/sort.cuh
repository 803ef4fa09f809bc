// sort.cuh: sorted elements of rows.
//
// An element becomes an entry: a number that grows in the order wanted, its key above, its place
// below, so that no two are equal and equal keys stay in order. The lowest bit tells a negative
// zero, whose key is that of zero. Keys of up to 32 bits make one 64-bit number with the place,
// wider ones a pair.
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

template <class T, bool Wide = sizeof(T) == 8>
struct Entry {
  uint64_t bits;
  GRAPHC_INLINE static Entry of(unsigned key, unsigned low) {
    return {static_cast<uint64_t>(key) << 32 | low};
  }
  GRAPHC_INLINE static Entry last() { return {~0ull}; }
  GRAPHC_INLINE unsigned key() const { return static_cast<unsigned>(bits >> 32); }
  GRAPHC_INLINE unsigned place_and_sign() const { return static_cast<unsigned>(bits); }
  GRAPHC_INLINE bool before(const Entry& other) const { return bits < other.bits; }
};
template <class T>
struct Entry<T, true> {
  uint64_t bits, low;
  GRAPHC_INLINE static Entry of(uint64_t key, unsigned low) { return {key, low}; }
  GRAPHC_INLINE static Entry last() { return {~0ull, ~0ull}; }
  GRAPHC_INLINE uint64_t key() const { return bits; }
  GRAPHC_INLINE unsigned place_and_sign() const { return static_cast<unsigned>(low); }
  GRAPHC_INLINE bool before(const Entry& other) const {
    return bits < other.bits || (bits == other.bits && low < other.low);
  }
};

// Keys in ascending order; NaN comes last.
GRAPHC_INLINE unsigned key_of(float v) {
  const int bits = same_bits<int>(v + 0.0f);  // of a negative zero, zero
  return v != v ? ~0u : static_cast<unsigned>(bits ^ (bits >> 31 | static_cast<int>(1u << 31)));
}
GRAPHC_INLINE uint64_t key_of(double v) {
  const int64_t bits = same_bits<int64_t>(v + 0.0);
  return v != v ? ~0ull : static_cast<uint64_t>(bits ^ (bits >> 63 | INT64_MIN));
}
GRAPHC_INLINE uint64_t key_of(int64_t v) { return static_cast<uint64_t>(v ^ INT64_MIN); }
GRAPHC_INLINE unsigned key_of(int v) { return static_cast<unsigned>(v) ^ 1u << 31; }
GRAPHC_INLINE unsigned key_of(int8_t v) { return static_cast<unsigned>(v + 128); }
GRAPHC_INLINE unsigned key_of(uint8_t v) { return v; }
GRAPHC_INLINE unsigned key_of(mask v) { return v.value; }
GRAPHC_INLINE bool negative_zero(float v) {
  return same_bits<int>(v) == static_cast<int>(1u << 31);
}
GRAPHC_INLINE bool negative_zero(double v) { return same_bits<int64_t>(v) == INT64_MIN; }
template <class T>
GRAPHC_INLINE bool negative_zero(T) {
  return false;
}

GRAPHC_INLINE void value_of(unsigned key, bool negative, float& v) {
  const int turned = static_cast<int>(~key) >> 31 | static_cast<int>(1u << 31);
  v = same_bits<float>(static_cast<int>(key) ^ turned ^ static_cast<int>(negative) << 31);
}
GRAPHC_INLINE void value_of(uint64_t key, bool negative, double& v) {
  const int64_t turned = static_cast<int64_t>(~key) >> 63 | INT64_MIN;
  v = same_bits<double>(static_cast<int64_t>(key) ^ turned ^ (negative ? INT64_MIN : 0));
}
GRAPHC_INLINE void value_of(uint64_t key, bool, int64_t& v) {
  v = static_cast<int64_t>(key) ^ INT64_MIN;
}
GRAPHC_INLINE void value_of(unsigned key, bool, int& v) { v = static_cast<int>(key ^ 1u << 31); }
GRAPHC_INLINE void value_of(unsigned key, bool, int8_t& v) {
  v = static_cast<int8_t>(static_cast<int>(key) - 128);
}
GRAPHC_INLINE void value_of(unsigned key, bool, uint8_t& v) { v = static_cast<uint8_t>(key); }
GRAPHC_INLINE void value_of(unsigned key, bool, mask& v) { v = key != 0; }

template <class T>
struct Ordered {
  vec<T> value;
  int place;
};
template <class T, bool Descending>
GRAPHC_INLINE Entry<T> pack(vec<T> value, int place) {
  const auto key = key_of(value);
  const unsigned low = static_cast<unsigned>(place) << 1 | negative_zero(value);
  return Entry<T>::of(Descending ? ~key : key, low);
}
template <class T, bool Descending>
GRAPHC_INLINE Ordered<T> unpack(const Entry<T>& entry) {
  const auto key = entry.key();
  const unsigned low = entry.place_and_sign();
  Ordered<T> result;
  value_of(Descending ? ~key : key, (low & 1) != 0, result.value);
  result.place = static_cast<int>(low >> 1);
  return result;
}

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
