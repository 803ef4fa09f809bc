// sort: sorted elements of rows.
//
// An element becomes an entry (sort_keys.h). Keys of up to 32 bits make one 64-bit number with the place, wider ones a pair.
//
// Short rows are sorted W at a time, one per lane, by a network: Batcher's merge exchange (Knuth, The Art of Computer Programming
// 3, 5.2.2, algorithm M). Long rows are sorted by their key's bytes, the lowest first, each pass stable; a byte that all keys
// share costs no pass. They are read along the axis, or W of them at a time where neighbouring rows are neighbours in memory.
// Where COUNT is much less than EXTENT, only elements before the COUNT-th of those met so far are kept, in a buffer of ROOM
// entries that is sorted and cut whenever it is full.
#pragma once
#include "cpu/prefix/prefix.h"

namespace graphc {
template <class T, bool WIDE = sizeof(element<vec<T>>) == 8> struct Entry {
  uint64_t bits;
  static constexpr int BYTES = sizeof(T) == 1 ? 1 : 4;
  INLINE static Entry last() { return {~0ull}; }
  INLINE bool before(const Entry& o) const { return bits < o.bits; }
  INLINE int digit(int pass) const { return bits >> (32 + 8 * pass) & 255; }
};
template <class T> struct Entry<T, true> {
  uint64_t key;
  uint32_t low;
  static constexpr int BYTES = 8;
  INLINE static Entry last() { return {~0ull, ~0u}; }
  INLINE bool before(const Entry& o) const { return key < o.key || (key == o.key && low < o.low); }
  INLINE int digit(int pass) const { return key >> (8 * pass) & 255; }
};
template <class E, class T> INLINE long keep_lanes(const E& entries, T* p, mask chosen, int live) {
  long count = 0;
  for (int l = 0; l < live; l++)
    if (chosen[l]) p[count++] = entries.lane(l);
  return count;
}
// W of them.
template <class T, bool WIDE = sizeof(element<vec<T>>) == 8> struct Entries {
  vec<uint64_t> bits;
  INLINE static Entries of(vec<uint32_t> key, vec<uint32_t> low) {
    return {convert<uint64_t>(key) << 32 | convert<uint64_t>(low)};
  }
  INLINE vec<uint32_t> key() const { return convert<uint32_t>(bits >> 32); }
  INLINE vec<uint32_t> low() const { return convert<uint32_t>(bits); }
  INLINE Entry<T> lane(int l) const { return {bits[l]}; }
  INLINE void set(int l, Entry<T> e) { bits[l] = e.bits; }
  INLINE mask before(const Entries& o) const { return as_mask(bits < o.bits); }
  // Stores the lanes of `chosen` one behind another; how many.
  INLINE long keep_to(Entry<T>* p, mask chosen, int live) const {
#if defined(GRAPHC_AVX512)
    const unsigned which =
        __builtin_ia32_cmpd512_mask(chosen, mask{}, 4, (unsigned short)((1u << live) - 1));
    const int low = __builtin_popcount(which & 255);
    __builtin_ia32_compressstoredi512_mask((Eight*)p, (Eight)bits.low, (unsigned char)which);
    __builtin_ia32_compressstoredi512_mask((Eight*)(p + low), (Eight)bits.high,
                                           (unsigned char)(which >> 8));
    return low + __builtin_popcount(which >> 8);
#else
    return keep_lanes(*this, p, chosen, live);
#endif
  }
  INLINE static void exchange(Entries& a, Entries& b) {
    const auto good = a.bits < b.bits;
    const vec<uint64_t> low = select(good, a.bits, b.bits);
    b.bits = select(good, b.bits, a.bits);
    a.bits = low;
  }
};
template <class T> struct Entries<T, true> {
  vec<uint64_t> keys;
  vec<uint32_t> lows;
  INLINE static Entries of(vec<uint64_t> key, vec<uint32_t> low) { return {key, low}; }
  INLINE vec<uint64_t> key() const { return keys; }
  INLINE vec<uint32_t> low() const { return lows; }
  INLINE Entry<T> lane(int l) const { return {keys[l], lows[l]}; }
  INLINE void set(int l, Entry<T> e) {
    keys[l] = e.key;
    lows[l] = e.low;
  }
  INLINE long keep_to(Entry<T>* p, mask chosen, int live) const {
    return keep_lanes(*this, p, chosen, live);
  }
  INLINE mask before(const Entries& o) const {
    return as_mask(keys < o.keys) | (as_mask(keys == o.keys) & as_mask(lows < o.lows));
  }
  INLINE static void exchange(Entries& a, Entries& b) {
    const mask good = a.before(b);
    const Entries first = {select(good, a.keys, b.keys), select(good, a.lows, b.lows)};
    b = {select(good, b.keys, a.keys), select(good, b.lows, a.lows)};
    a = first;
  }
};

template <class T, class V> INLINE vec<T> same_bits(V v) { return (vec<T>)v; }
INLINE vec<uint32_t> bit_of(mask m) { return (vec<uint32_t>)m & 1; }
}  // namespace graphc
#define GRAPHC_KEYS INLINE
#include "sort_keys.h"
#undef GRAPHC_KEYS

namespace graphc {
template <long N, class E> INLINE void network(E* e) {
  constexpr long top = [] {
    long power = 1;
    while (2 * power < N) power *= 2;
    return power;
  }();
  for (long p = top; p > 0 && N > 1; p >>= 1) {
    long distance = p, turn = 0;
    for (long q = top;; q >>= 1) {
      for (long block = turn; block + distance < N; block += 2 * p)
        for (long i = block; i < least(block + p, N - distance); i++)
          E::exchange(e[i], e[i + distance]);
      if (q == p) break;
      distance = q - p;
      turn = p;
    }
  }
}

// Rows in the lanes: strips [begin, end) of one register.
template <class Kept, class T, bool DESCENDING, long EXTENT, long COUNT, class Read, class Write>
INLINE void sort_columns(long begin, long end, const Read& read, const Write& write) {
  strips<Kept, 1>(
      begin, end, [&]<int R, int N>(const long* i, long r, long) __attribute__((always_inline)) {
        Entries<T> entries[EXTENT];
        for (long j = 0; j < EXTENT; j++)
          entries[j] = pack<T, DESCENDING>(read.template operator()<N>(i, r, j), splat(int32_t(j)));
        network<EXTENT>(entries);
        for (long j = 0; j < COUNT; j++)
          write.template operator()<N>(i, r, j, unpack<T, DESCENDING>(entries[j]));
      });
}

// Sorts n entries of a; b is room for as many. The sorted ones lie where it says.
template <class E> __attribute__((noinline)) E* sort_bytes(E* a, E* b, long n) {
  if (n <= 64) {
    for (long i = 1; i < n; i++) {
      const E e = a[i];
      long j = i;
      for (; j > 0 && e.before(a[j - 1]); j--) a[j] = a[j - 1];
      a[j] = e;
    }
    return a;
  }
  uint32_t counts[E::BYTES][256] = {};
  for (long i = 0; i < n; i++)
    for (int pass = 0; pass < E::BYTES; pass++) counts[pass][a[i].digit(pass)]++;
  for (int pass = 0; pass < E::BYTES && n > 0; pass++) {
    uint32_t* const count = counts[pass];
    if (count[a[0].digit(pass)] == n) continue;
    uint32_t start = 0;
    for (int d = 0; d < 256; d++) {
      const uint32_t c = count[d];
      count[d] = start;
      start += c;
    }
    for (long i = 0; i < n; i++) b[count[a[i].digit(pass)]++] = a[i];
    E* const swapped = a;
    a = b;
    b = swapped;
  }
  return a;
}

// take<M>(j) for the registers of [0, END), of which M lanes live.
template <long END, class Take> INLINE void registers(const Take& take) {
  for (long j = 0; j + W <= END; j += W) take.template operator()<W>(j);
  if constexpr (END % W != 0) take.template operator()<END % W>(END / W * W);
}

// The first entries of a row, as far as they are known: all of them, or the first COUNT as soon as ROOM does not hold all.
template <class T, long COUNT, long ROOM> struct Buffer {
  Entry<T>*entries, *spare;
  long size;
  Entry<T> last;  // what is not before it is not among the first COUNT

  INLINE Buffer(Entry<T>* entries, Entry<T>* spare)
      : entries(entries), spare(spare), size(0), last(Entry<T>::last()) {}
  INLINE void sort() {
    Entry<T>* const sorted = sort_bytes(entries, spare, size);
    if (sorted == spare) spare = entries;
    entries = sorted;
  }
  INLINE void cut() {
    sort();
    size = COUNT;
    if (COUNT > 0) last = entries[COUNT - 1];
  }
};

// The axis in the lanes: rows [begin, end); `workspace` is room for 2 ROOM entries.
template <class Kept, class T, bool DESCENDING, long EXTENT, long COUNT, long ROOM, class Read,
          class Write>
INLINE void sort_rows(long begin, long end, char* workspace, const Read& read, const Write& write) {
  Entry<T>* const memory = (Entry<T>*)workspace;
  strips<Kept, 1>(begin, end,
                  [&]<int R, int N>(const long* i, long r, long) __attribute__((always_inline)) {
                    Buffer<T, COUNT, ROOM> row(memory, memory + ROOM);
                    Entries<T> last;
                    for (int l = 0; l < W; l++) last.set(l, row.last);
                    registers<EXTENT>([&]<int M>(long j) __attribute__((always_inline)) {
                      const Entries<T> e = pack<T, DESCENDING>(read.template operator()<M>(i, r, j),
                                                               splat(int32_t(j)) + lanes());
                      if constexpr (ROOM >= EXTENT) {
                        for (int l = 0; l < M; l++) row.entries[j + l] = e.lane(l);
                        row.size = j + M;
                      } else {
                        const mask good = e.before(last);
                        if (!any(good)) return;
                        row.size += e.keep_to(row.entries + row.size, good, M);
                        if (row.size + W <= ROOM) return;
                        row.cut();
                        for (int l = 0; l < W; l++) last.set(l, row.last);
                      }
                    });
                    row.sort();
                    registers<COUNT>([&]<int M>(long j) __attribute__((always_inline)) {
                      Entries<T> e{};
                      for (int l = 0; l < M; l++) e.set(l, row.entries[j + l]);
                      write.template operator()<M>(i, r, j, unpack<T, DESCENDING>(e));
                    });
                  });
}

// Long rows in the lanes: strips [begin, end) of one register; `workspace` is room for (W + 1) ROOM entries.
template <class Kept, class T, bool DESCENDING, long EXTENT, long COUNT, long ROOM, class Read,
          class Write>
INLINE void sort_apart(long begin, long end, char* workspace, const Read& read,
                       const Write& write) {
  Entry<T>* const memory = (Entry<T>*)workspace;
  strips<Kept, 1>(
      begin, end, [&]<int R, int N>(const long* i, long r, long) __attribute__((always_inline)) {
        Entry<T>*rows[N], *spare = memory + N * ROOM;
        long sizes[N] = {};
        Entries<T> last;
        for (int l = 0; l < N; l++) rows[l] = memory + l * ROOM;
        for (int l = 0; l < W; l++) last.set(l, Entry<T>::last());
        auto sort = [&](int l) __attribute__((always_inline)) {
          Buffer<T, COUNT, ROOM> row(rows[l], spare);
          row.size = sizes[l];
          row.cut();
          rows[l] = row.entries;
          spare = row.spare;
          sizes[l] = COUNT;
          last.set(l, row.last);
        };
        for (long j = 0; j < EXTENT; j++) {
          const Entries<T> e =
              pack<T, DESCENDING>(read.template operator()<N>(i, r, j), splat(int32_t(j)));
          if constexpr (ROOM >= EXTENT) {
            for (int l = 0; l < N; l++) rows[l][j] = e.lane(l);
          } else {
            const mask good = e.before(last);
            if (!any(good)) continue;
            for (int l = 0; l < N; l++)
              if (good[l]) {
                rows[l][sizes[l]++] = e.lane(l);
                if (sizes[l] == ROOM) sort(l);
              }
          }
        }
        for (int l = 0; l < N; l++) {
          if (ROOM >= EXTENT) sizes[l] = EXTENT;
          sort(l);
        }
        for (long j = 0; j < COUNT; j++) {
          Entries<T> e{};
          for (int l = 0; l < N; l++) e.set(l, rows[l][j]);
          write.template operator()<N>(i, r, j, unpack<T, DESCENDING>(e));
        }
      });
}
}  // namespace graphc
