// memory.cuh: loads and stores of elements. The text of an expression is the same for all devices:
// it passes live lanes, strides from lane to lane and, for scaled indices of padded or strided
// views, divisors. A register here is one lane, so most of these have no effect. Booleans are bytes
// in memory, of value 0 or 1.
#pragma once
#include "cuda/shared/block.cuh"
#include "cuda/shared/math.cuh"

namespace graphc {

// The register of an element of memory.
template <class T>
struct Register {
  using type = T;
};
template <>
struct Register<bool> {
  using type = mask;
};
template <>
struct Register<half> {
  using type = float;
};
template <>
struct Register<bfloat> {
  using type = float;
};
template <class T>
using vec = typename Register<T>::type;

// N neighbours that move at once, or by 16 bytes; the address is a multiple of their size or of 16.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Run {
  T at[N];
};

// Whether an epilogue loads something of a run of columns for all of their rows, its Columns, and
// whether it stores whole runs where columns that do not exist have a place behind the last.
template <class Epilogue, class = void>
struct KnowsColumns {
  static constexpr bool yes = false, pads = false;
};
template <class Epilogue>
struct KnowsColumns<Epilogue, decltype(void(Epilogue::pads))> {
  static constexpr bool yes = true, pads = Epilogue::pads;
};
template <class Epilogue>
constexpr bool knows_columns = KnowsColumns<Epilogue>::yes;

// Gives an epilogue the run of sums from column n on, or, one by one, those of N columns that are left.
template <int N, class Epilogue, class T>
GRAPHC_INLINE void apply_run(const Epilogue& epilogue, int batch, int m, int n, const T* sums) {
  constexpr int run = Epilogue::run, left = N % run;
  if constexpr (run == 1) epilogue(batch, m, n, *sums);
  else if (left == 0 || KnowsColumns<Epilogue>::pads || n + run <= N)
    epilogue(batch, m, n, *reinterpret_cast<const Run<T, run>*>(sums));
  else
#pragma unroll
    for (int i = 0; i < left; i++) epilogue(batch, m, n + i, sums[i]);
}

// An epilogue of one run of columns, with what it loads for all their rows.
template <class Epilogue>
struct OfColumns {
  static constexpr int run = Epilogue::run;
  static constexpr bool pads = KnowsColumns<Epilogue>::pads;
  const Epilogue& epilogue;
  typename Epilogue::Columns columns;
  template <class T>
  GRAPHC_INLINE void operator()(int batch, int m, int n, T sum) const {
    epilogue(batch, m, n, sum);
  }
  template <class T>
  GRAPHC_INLINE void operator()(int batch, int m, int n, const Run<T, run>& sums) const {
    epilogue(batch, m, n, sums, columns);
  }
};
// The epilogue of the run of columns from n on, in which a thread `Stays`: itself, if it does not or
// loads nothing for all rows.
template <bool Stays, class Epilogue>
GRAPHC_INLINE decltype(auto) of_columns(const Epilogue& epilogue, int n) {
  if constexpr (Stays && knows_columns<Epilogue>)
    return OfColumns<Epilogue>{epilogue, epilogue.columns(n)};
  else return (epilogue);
}

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

template <int Live, int LaneStride, class T>
GRAPHC_INLINE vec<T> load(const T* p) {
  return decode(*p);
}
// Zero, and no access, where the condition is false.
template <int Live, int LaneStride, int Divisor, class T, class Index>
GRAPHC_INLINE vec<T> load_if(mask condition, const T* p, Index offset) {
  return decode(condition.value ? p[offset / Divisor] : T{});
}
template <int Live, int LaneStride, class T, class Value>
GRAPHC_INLINE void store(T* p, Value value) {
  *p = static_cast<T>(value);
}
template <int Live, int LaneStride>
GRAPHC_INLINE void store(half* p, float value) {
  *p = encode<half>(value);
}
template <int Live, int LaneStride>
GRAPHC_INLINE void store(bfloat* p, float value) {
  *p = encode<bfloat>(value);
}

template <class T>
GRAPHC_INLINE vec<T> splat(T value) {
  return value;
}
template <class T, int LaneStride, int Divisor, class Index>
GRAPHC_INLINE vec<T> iota(Index index) {
  return static_cast<T>(index / Divisor);
}

// Whether index / Divisor is a whole number from 0 to below High / Divisor.
template <int LaneStride, long long High, int Divisor, class Index>
GRAPHC_INLINE mask inside(Index index) {
  return index >= 0 && index < High && index % Divisor == 0;
}
GRAPHC_INLINE mask both(mask a, mask b) { return a & b; }

template <int LaneStride, int Divisor, class Index>
GRAPHC_INLINE float philox_uniform(unsigned seed, unsigned number, int step, Index index,
                                   unsigned word = 0) {
  return philox_uniform(seed, number, static_cast<unsigned>(step),
                        static_cast<long long>(index / Divisor), word);
}

// The element that lies Stride * index behind p[offset]; zero where index is not in [0, Extent) and
// where the condition is false.
template <int Live, int LaneStride, int Divisor, long long Stride, long long Extent, bool Uniform,
          class T, class Index, class Offset>
GRAPHC_INLINE vec<T> take(mask condition, const T* p, Offset offset, Index index) {
  const long long place = index;
  const bool exists = condition.value && place >= 0 && place < Extent;
  return decode(exists ? p[offset / Divisor + Stride * place] : T{});
}

// How many of the Extent ascending elements from p[offset] on, Stride apart, are less than value (or
// equal, if Right); NaN is larger than anything. 0 where the condition is false.
template <int Live, int LaneStride, int Divisor, long long Stride, long long Extent, bool Right,
          class T, class Offset>
GRAPHC_INLINE int64_t search(mask condition, const T* p, Offset offset, vec<T> value) {
  const T* const row = p + offset / Divisor;
  long long low = 0, high = condition.value ? Extent : 0;
  while (low < high) {
    const long long middle = (low + high) / 2;
    const T x = row[middle * Stride];
    const bool before =
        Right ? x <= value || value != value : x < value || (value != value && x == x);
    low = before ? middle + 1 : low;
    high = before ? high : middle;
  }
  return low;
}

}  // namespace graphc
