// tensor.cuh: the tile of contract.cuh whose sums tensor cores compute, in float32. Both operands
// are of one element:
//   half, bfloat   as they lie; a product is exact
//   tf32           floats in memory, each rounded to 10 bits of fraction where it is read
//   as_bfloat      the same to 7 bits, and multiplied as tf32, which has all of those numbers
//   float          floats, each taken as the tf32 nearest to it and the tf32 nearest to the rest;
//                  of the four products of parts the smallest is left out
//
// A warp holds WM x WN sums as fragments of 16 x 8: of c[i], row lane / 4 + i / 2 * 8 and column
// lane % 4 * 2 + i % 2. Operands lie in dynamic shared memory in lines of k or of outer, without
// gaps; the 16-byte chunks of a line are permuted so that a warp's reads meet all banks equally.
//
// Fragments are read by ldmatrix, 16 of outer x 32 bytes of k at a time: floats too where lines run
// along k, as a pair of two bytes each; elements of two bytes turned where lines run along outer.
// There floats are read one by one for B, and two rows of A at once, which are rows g and g + 8 of a
// fragment: registers then are loaded where a product wants them, and no move stands between.
//
// Sums leave by shared memory, where the operands' tiles were, so that neighbouring threads store
// neighbours. Shared memory: Contract::shared_bytes, dynamic, aligned to 16 bytes.
#pragma once
#include "cuda/contract/contract.cuh"

namespace graphc {

template <class Access, int Outer, int BK>
struct SwizzledTile {
  using T = typename Access::element;
  static constexpr bool along_k = Access::along_k;
  static constexpr int line = along_k ? BK : Outer, lines = along_k ? Outer : BK;
  static constexpr int quad = 16 / sizeof(T), chunks = line / quad;
  static constexpr int bytes = lines * line * sizeof(T);
  static_assert(line % quad == 0 && (chunks % 8 == 0 || (chunks & (chunks - 1)) == 0),
                "chunks are permuted among eight, or all");
  static_assert(sizeof(T) == 2 || along_k || chunks >= 8, "four lines lie in different banks");
  // A multiple of so much of outer may be skipped: what lies behind it is permuted as without.
  static constexpr int period = along_k ? 8 : smaller(chunks, 8) * quad;
  static constexpr int skipped = along_k ? line : 1;  // elements for each of outer
  GRAPHC_INLINE static int at(int outer, int k) {
    const int y = along_k ? outer : k, x = along_k ? k : outer;
    int moved = 0;
    if constexpr (sizeof(T) == 2 || along_k)  // eight lines at one chunk
      moved = y / (chunks < 8 ? 8 / chunks : 1) % smaller(chunks, 8);
    else moved = y % 4 * 2;  // four lines at two neighbouring chunks
    return y * line + (x / quad ^ moved) * quad + x % quad;
  }
  GRAPHC_INLINE static T* element(T* tile, int outer, int k) { return tile + at(outer, k); }
};

// How a warp reads fragments of an operand from a shared tile. `depth` of k make one product; the row
// or column `g` of the r-th eight of a warp is at `place`.
template <class Shared>
struct Fragments {
  using T = typename Shared::T;
  static constexpr int half_depth = 16 / sizeof(T), depth = 2 * half_depth;
  // Rows of A that lie side by side are read at once: row g and row g + 8 of a fragment.
  static constexpr bool pairs = sizeof(T) == 4 && !Shared::along_k;

  template <bool ForB>
  GRAPHC_INLINE static int place(int r, int g) {
    return pairs && !ForB ? r / 2 * 16 + g * 2 + r % 2 : r * 8 + g;
  }
  // 16 of outer x depth of k: quarters in the order of A's registers (outer changes first), or ForB
  // of those of two fragments of B (k changes first).
  template <bool ForB>
  GRAPHC_INLINE static void load(unsigned (&to)[4], const T* tile, int outer, int k) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
    const int o = outer + (ForB ? high : low) * 8, c = k + (ForB ? low : high) * half_depth;
    if constexpr (Shared::along_k) {
      load_matrices<false>(to, tile + outer * Shared::line + Shared::at(o - outer + lane % 8, c));
    } else if constexpr (sizeof(T) == 2) {
      load_matrices<true>(to, tile + Shared::at(o, c + lane % 8));
    } else if constexpr (!ForB) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const auto two = *reinterpret_cast<const Run<T, 2>*>(
            tile + Shared::at(outer + lane / 4 * 2, k + lane % 4 + i * 2));
        to[i] = bits_of(two.at[0]);
        to[i + 1] = bits_of(two.at[1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++)
        to[i] = bits_of(tile[Shared::at(outer + i / 2 * 8 + lane / 4, k + lane % 4 + i % 2 * 4)]);
    }
  }
  GRAPHC_INLINE static unsigned bits_of(float x) { return __float_as_uint(x); }
  GRAPHC_INLINE static unsigned bits_of(tf32 x) { return __float_as_uint(x.value); }
  GRAPHC_INLINE static unsigned bits_of(as_bfloat x) { return __float_as_uint(x.value); }
};

// What tensor cores make of registers as they are loaded: the parts of which each consists.
template <class T>
struct Product {
  static constexpr int parts = 1;
  template <int N>
  GRAPHC_INLINE static void split(unsigned (&)[1][N]) {}
};
// A float as the sum of the nearest tf32 and, if there are two parts, the nearest of what is left.
template <int Parts>
struct RoundedProduct {
  static constexpr int parts = Parts;
  template <int N>
  GRAPHC_INLINE static void split(unsigned (&to)[Parts][N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      const float value = __uint_as_float(to[0][i]), near = float_to_tf32(value);
      to[0][i] = __float_as_uint(near);
      if constexpr (Parts == 2) to[1][i] = __float_as_uint(float_to_tf32(value - near));
    }
  }
};
template <>
struct Product<tf32> : RoundedProduct<1> {};
template <>
struct Product<float> : RoundedProduct<2> {};
template <>
struct Product<as_bfloat> {
  static constexpr int parts = 1;
  template <int N>
  GRAPHC_INLINE static void split(unsigned (&to)[1][N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
      to[0][i] = __float_as_uint(round_to_bfloat(__uint_as_float(to[0][i])));
  }
};
using FragmentA = const unsigned (&)[4];
using FragmentB = const unsigned (&)[2];
GRAPHC_INLINE void multiply(half, float (&sum)[4], FragmentA a, FragmentB b) {
  multiply_halves(sum, a, b);
}
GRAPHC_INLINE void multiply(bfloat, float (&sum)[4], FragmentA a, FragmentB b) {
  multiply_bfloats(sum, a, b);
}
GRAPHC_INLINE void multiply(tf32, float (&sum)[4], FragmentA a, FragmentB b) {
  multiply_tf32(sum, a, b);
}
GRAPHC_INLINE void multiply(as_bfloat, float (&sum)[4], FragmentA a, FragmentB b) {
  multiply_tf32(sum, a, b);
}
GRAPHC_INLINE void multiply(float, float (&sum)[4], FragmentA a, FragmentB b) {
  multiply_tf32(sum, a, b);
}

// Of each step so much of k is `Unrolled`: more of floats along outer, each of whose places is
// a register, would not fit those of two blocks with the largest sums.
template <int BM_, int BN_, int BK_, int WM, int WN, int Stages, int Unrolled = BK_>
struct TensorCores {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, stages = Stages;
  static constexpr int down = BM / WM, threads = 32 * down * (BN / WN);
  static constexpr bool exchanges = true, asynchronous = false;
  static constexpr int ahead = Stages - 1;
  static constexpr int groups = 1;
  static constexpr int pitch = BN + 8;  // rows of sums, four of which lie in different banks
  static_assert(WM % 16 == 0 && WN % 16 == 0 && BK % 16 == 0, "whole fragments");

  template <class Access, int Outer>
  using Shared = SwizzledTile<Access, Outer, BK>;

  template <class SharedA, class SharedB, class Sum>
  struct Sums {
    using T = typename SharedA::T;
    using A = Fragments<SharedA>;
    using B = Fragments<SharedB>;
    static constexpr int parts = Product<T>::parts, group = 0;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int m0 = warp % down * WM, n0 = warp / down * WN;
    float sum[WM / 16][WN / 8][4] = {};

    GRAPHC_INLINE void step(const T* tile_a, const T* tile_b) {
      // A warp's part is skipped to at once where it can be: places in it are then known beforehand.
      const int first_a = WM % SharedA::period ? m0 : 0, first_b = WN % SharedB::period ? n0 : 0;
      tile_a += (m0 - first_a) * SharedA::skipped;
      tile_b += (n0 - first_b) * SharedB::skipped;
#pragma unroll(Unrolled / A::depth)
      for (int k = 0; k < BK; k += A::depth) {
        unsigned a[WM / 16][parts][4];
#pragma unroll
        for (int m = 0; m < WM / 16; m++) {
          A::template load<false>(a[m][0], tile_a, first_a + m * 16, k);
          Product<T>::split(a[m]);
        }
#pragma unroll
        for (int n = 0; n < WN / 8; n += 2) {
          unsigned b[parts][4];
          B::template load<true>(b[0], tile_b, first_b + n * 8, k);
          Product<T>::split(b);
          if constexpr (parts == 2) {  // the smaller products first
            add(n, a, 1, b[0]);
            add(n, a, 0, b[1]);
          }
          add(n, a, 0, b[0]);
        }
      }
    }
    // Columns of fragments n and n + 1, with one part of a.
    GRAPHC_INLINE void add(int n, const unsigned (&a)[WM / 16][parts][4], int part,
                           const unsigned (&both)[4]) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const unsigned b[2] = {both[j * 2], both[j * 2 + 1]};
#pragma unroll
        for (int m = 0; m < WM / 16; m++) multiply(T{}, sum[m][n + j], a[m][part], b);
      }
    }
    template <class Visitor>
    GRAPHC_INLINE void visit(const Visitor& visitor) const {
#pragma unroll
      for (int r = 0; r < WM / 8; r++)
#pragma unroll
        for (int c = 0; c < WN / 8; c++)
#pragma unroll
          for (int i = 0; i < 2; i++)
            visitor(m0 + A::template place<false>(r, lane / 4),
                    n0 + B::template place<true>(c, lane % 4 * 2 + i),
                    sum[r / 2][c][r % 2 * 2 + i]);
    }
  };
};

}  // namespace graphc
