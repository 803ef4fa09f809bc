// tensor.cuh: the tile of contract.cuh whose sums tensor cores compute, in float32. Both operands
// are of one element:
//   half, bfloat   as they lie; a product is exact
//   tf32           floats in memory, each rounded to 10 bits of fraction where it is read
//   float          floats, each taken as the tf32 nearest to it and the tf32 nearest to the rest;
//                  of the four products of parts the smallest is left out
//
// A warp holds WM x WN sums as fragments of 16 x 8: of c[i], row lane / 4 + i / 2 * 8 and column
// lane % 4 * 2 + i % 2. Operands lie in dynamic shared memory in lines of k or of outer, without
// gaps; the 16-byte chunks of a line are permuted so that a warp's reads meet all banks equally.
//
// Elements of two bytes are read by ldmatrix, 16 of outer x 16 of k at a time; turned where lines run
// along outer. Floats are read 16 bytes at a time, of 16 of k as well: as a product may take k in any
// order, the lane at place t of its row takes k = 4 t ... 4 t + 3 and gives two to each of two
// products of tf32. Where lines run along outer its 16 bytes are 4 rows of different fragments.
//
// Sums leave by shared memory, where the operands' tiles were, so that neighbouring threads store
// neighbours. Shared memory: Contract::shared_bytes, dynamic, aligned to 16 bytes.
#pragma once
#include "contract.cuh"

namespace graphc {

template <class Access, int Outer, int BK>
struct SwizzledTile {
  using T = typename Access::element;
  static constexpr bool along_k = Access::along_k;
  static constexpr int line = along_k ? BK : Outer, lines = along_k ? Outer : BK;
  static constexpr int quad = 16 / sizeof(T), chunks = line / quad;
  static constexpr int bytes = lines * line * sizeof(T);
  static_assert(line % quad == 0 && (chunks & (chunks - 1)) == 0, "lines of 16 * 2^i bytes");
  static_assert(sizeof(T) == 2 || along_k || chunks >= 8, "four lines lie in different banks");
  GRAPHC_INLINE static int at(int outer, int k) {
    const int y = along_k ? outer : k, x = along_k ? k : outer;
    int moved = 0;
    if constexpr (sizeof(T) == 2) moved = y / (chunks < 8 ? 8 / chunks : 1) % smaller(chunks, 8);
    else if constexpr (!along_k)
      moved = y / 4 % 4 * 2;  // of lines that differ by 4, two chunks each
    else if constexpr (chunks >= 8) moved = y % 2 * 4;  // of neighbouring lines, four chunks each
    return y * line + (x / quad ^ moved) * quad + x % quad;
  }
};

// How a warp multiplies WM x 16 elements by 16 x WN, read from shared tiles at m0, n0 and k; and which
// place along outer the row `g` of the r-th of a warp's fragments is, eight rows or columns each.
template <class T, int WM, int WN>
struct Fragments {
  template <class Shared, int Count>
  GRAPHC_INLINE static int place(int r, int g) {
    return r * 8 + g;
  }
  // 16 of outer x 16 of k: quarters in the order of A's registers (outer changes first), or ForB of
  // those of two fragments of B (k changes first).
  template <class Shared, bool ForB>
  GRAPHC_INLINE static void load(unsigned (&to)[4], const T* tile, int outer, int k) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
    const int o = outer + (ForB ? high : low), c = k + (ForB ? low : high);
    if constexpr (Shared::along_k) load_matrices<false>(to, tile + Shared::at(o + lane % 8, c));
    else load_matrices<true>(to, tile + Shared::at(o, c + lane % 8));
  }
  template <class SharedA, class SharedB>
  GRAPHC_INLINE static void multiply(float (&sum)[WM / 16][WN / 8][4], const T* tile_a,
                                     const T* tile_b, int m0, int n0, int k) {
    unsigned a[WM / 16][4];
#pragma unroll
    for (int m = 0; m < WM / 16; m++) load<SharedA, false>(a[m], tile_a, m0 + m * 16, k);
#pragma unroll
    for (int n = 0; n < WN / 8; n += 2) {
      unsigned both[4];
      load<SharedB, true>(both, tile_b, n0 + n * 8, k);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const unsigned b[2] = {both[j * 2], both[j * 2 + 1]};
#pragma unroll
        for (int m = 0; m < WM / 16; m++) add(T{}, sum[m][n + j], a[m], b);
      }
    }
  }
  using A = const unsigned (&)[4];
  using B = const unsigned (&)[2];
  GRAPHC_INLINE static void add(half, float (&sum)[4], A a, B b) { multiply_halves(sum, a, b); }
  GRAPHC_INLINE static void add(bfloat, float (&sum)[4], A a, B b) { multiply_bfloats(sum, a, b); }
};

GRAPHC_INLINE float unrounded(float x) { return x; }
GRAPHC_INLINE float unrounded(tf32 x) { return x.value; }

// Floats, as Parts numbers of tf32 each.
template <class T, int Parts, int WM, int WN>
struct FloatFragments {
  // Rows of fragments that a lane reads at once.
  template <class Shared, int Count>
  static constexpr int together = Shared::along_k ? 1 : smaller(Count, 4);
  template <class Shared, int Count>
  GRAPHC_INLINE static int place(int r, int g) {
    constexpr int some = together<Shared, Count>;
    return r / some * (8 * some) + g * some + r % some;
  }

  struct Row {
    unsigned part[Parts][4];  // of four of k
    GRAPHC_INLINE void set(int j, float value) {
      const float near = float_to_tf32(value);
      part[0][j] = __float_as_uint(near);
      if constexpr (Parts == 2) part[1][j] = __float_as_uint(float_to_tf32(value - near));
    }
  };
  // `together` rows from the r-th of Count.
  template <class Shared, int Count>
  GRAPHC_INLINE static void load(Row* to, const T* tile, int outer, int r, int k) {
    const int lane = threadIdx.x % 32, at = outer + place<Shared, Count>(r, lane / 4);
    const int first = k + lane % 4 * 4;
    constexpr int some = together<Shared, Count>;
    if constexpr (Shared::along_k) {
      const auto four = *reinterpret_cast<const Pack<T, 4>*>(tile + Shared::at(at, first));
#pragma unroll
      for (int j = 0; j < 4; j++) to->set(j, unrounded(four.at[j]));
    } else {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const auto rows = *reinterpret_cast<const Pack<T, some>*>(tile + Shared::at(at, first + j));
#pragma unroll
        for (int i = 0; i < some; i++) to[i].set(j, unrounded(rows.at[i]));
      }
    }
  }
  template <class SharedA, class SharedB>
  GRAPHC_INLINE static void multiply(float (&sum)[WM / 16][WN / 8][4], const T* tile_a,
                                     const T* tile_b, int m0, int n0, int k) {
    constexpr int some_a = together<SharedA, WM / 8>, some_b = together<SharedB, WN / 8>;
    Row a[WM / 8], b[some_b];
#pragma unroll
    for (int r = 0; r < WM / 8; r += some_a) load<SharedA, WM / 8>(a + r, tile_a, m0, r, k);
    // Part i of a times part j of b, for one column of fragments and two of a lane's four of k.
    auto add = [&](int i, int j, int n, int two) {
      const Row& column = b[n % some_b];
      const unsigned y[2] = {column.part[j][two], column.part[j][two + 1]};
#pragma unroll
      for (int m = 0; m < WM / 16; m++) {
        const Row &above = a[2 * m], &below = a[2 * m + 1];
        const unsigned x[4] = {above.part[i][two], below.part[i][two], above.part[i][two + 1],
                               below.part[i][two + 1]};
        multiply_tf32(sum[m][n], x, y);
      }
    };
#pragma unroll
    for (int n = 0; n < WN / 8; n++) {
      if (n % some_b == 0) load<SharedB, WN / 8>(b, tile_b, n0, n, k);
#pragma unroll
      for (int two = 0; two < 4; two += 2) {
        if constexpr (Parts == 2) {
          add(1, 0, n, two);
          add(0, 1, n, two);
        }
        add(0, 0, n, two);
      }
    }
  }
};
template <int WM, int WN>
struct Fragments<tf32, WM, WN> : FloatFragments<tf32, 1, WM, WN> {};
template <int WM, int WN>
struct Fragments<float, WM, WN> : FloatFragments<float, 2, WM, WN> {};

template <int BM_, int BN_, int BK_, int WM, int WN, int Stages>
struct TensorCores {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, stages = Stages;
  static constexpr int down = BM / WM, threads = 32 * down * (BN / WN);
  static constexpr bool exchanges = true;
  static constexpr int pitch = BN + 8;  // rows of sums, four of which lie in different banks
  static_assert(WM % 16 == 0 && WN % 16 == 0 && BK % 16 == 0, "whole fragments");

  template <class Access, int Outer>
  using Shared = SwizzledTile<Access, Outer, BK>;

  template <class SharedA, class SharedB, class Sum>
  struct Sums {
    using T = typename SharedA::T;
    using Warp = Fragments<T, WM, WN>;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int m0 = warp % down * WM, n0 = warp / down * WN;
    float sum[WM / 16][WN / 8][4] = {};

    GRAPHC_INLINE void step(const T* tile_a, const T* tile_b) {
#pragma unroll
      for (int k = 0; k < BK; k += 16)
        Warp::template multiply<SharedA, SharedB>(sum, tile_a, tile_b, m0, n0, k);
    }
    template <class Visitor>
    GRAPHC_INLINE void visit(const Visitor& visitor) const {
#pragma unroll
      for (int r = 0; r < WM / 8; r++)
#pragma unroll
        for (int c = 0; c < WN / 8; c++)
#pragma unroll
          for (int i = 0; i < 2; i++)
            visitor(m0 + Warp::template place<SharedA, WM / 8>(r, lane / 4),
                    n0 + Warp::template place<SharedB, WN / 8>(c, lane % 4 * 2 + i),
                    sum[r / 2][c][r % 2 * 2 + i]);
    }
  };
};

}  // namespace graphc
