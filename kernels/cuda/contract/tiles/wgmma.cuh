// wgmma.cuh: a tile for contract.cuh whose sums are those of wgmma, Hopper's products of warp groups:
// 64 rows of a tile each, 128 columns at a time. They read both operands from shared memory by
// themselves, so a thread holds sums alone, and those of one step go on while the next is waited for.
//
// Both operands are of two bytes, with BK = 64. They lie in lines of 128 bytes whose chunks of 16
// bytes are permuted by the line: lines of k, or of 64 rows or columns for each k, panel by panel.
// Shared memory: Contract::shared_bytes, dynamic, aligned to 1024 bytes. Needs sm_90a.
#pragma once
#include "cuda/contract/tiles/tensor.cuh"
#include "cuda/shared/warp_groups.cuh"

#if !defined(GRAPHC_SIM) && defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "products of warp groups (GRAPHC_WGMMA) need a GPU of compute capability 9.0"
#endif

namespace graphc {

template <class Access, int Outer, int BK>
struct PanelTile {
  using T = typename Access::element;
  static constexpr bool along_k = Access::along_k;
  static constexpr int line = along_k ? BK : Outer, lines = along_k ? Outer : BK;
  static constexpr int quad = 16 / sizeof(T), bytes = Outer * BK * sizeof(T);
  static_assert(sizeof(T) == 2 && BK == 64 && Outer % 64 == 0, "panels of 64 lines of 128 bytes");
  GRAPHC_INLINE static int at(int outer, int k) {
    const int y = along_k ? outer : outer / 64 * 64 + k, x = along_k ? k : outer % 64;
    return y * 64 + (x / quad ^ y % 8) * quad + x % quad;
  }
  GRAPHC_INLINE static T* element(T* tile, int outer, int k) { return tile + at(outer, k); }
};

template <class T>
constexpr int kind_of = 1;
template <>
constexpr int kind_of<half> = 0;

template <int BM_, int BN_, int BK_, int Stages>
struct WarpGroups {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, stages = Stages;
  static constexpr int threads = 2 * BM, groups = 1, pitch = BN + 8;
  static constexpr bool exchanges = true, asynchronous = true;
  static constexpr int ahead = Stages - 2;  // products of the last step read its tiles still
  static_assert(BM % 64 == 0 && BN % 128 == 0 && Stages > 2, "whole products");

  template <class Access, int Outer>
  using Shared = PanelTile<Access, Outer, BK>;

  template <class SharedA, class SharedB, class Sum>
  struct Sums {
    using T = typename SharedA::T;
    static constexpr int group = 0;
    float sum[BN / 128][16][4] = {};

    GRAPHC_INLINE void step(const T* tile_a, const T* tile_b) {
      const T* const rows = tile_a + threadIdx.x / 128 * (64 * BK);
      group_fence();
#pragma unroll
      for (int k = 0; k < BK; k += 16)
#pragma unroll
        for (int n = 0; n < BN / 128; n++)
          group_multiply<kind_of<T>, SharedA::along_k, SharedB::along_k>(
              sum[n], rows, tile_b + n * (128 * BK), k);
      group_commit();
      group_wait<1>();  // those of the step before have ended
    }
    GRAPHC_INLINE void finish() {
      group_wait<0>();
#pragma unroll
      for (int n = 0; n < BN / 128; n++) group_sums(sum[n]);
    }
    template <class Visitor>
    GRAPHC_INLINE void visit(const Visitor& visitor) const {
      const int lane = threadIdx.x % 32, m = threadIdx.x / 32 * 16 + lane / 4, n = lane % 4 * 2;
#pragma unroll
      for (int piece = 0; piece < BN / 128; piece++)
#pragma unroll
        for (int c = 0; c < 16; c++)
#pragma unroll
          for (int i = 0; i < 4; i++)
            visitor(m + i / 2 * 8, piece * 128 + c * 8 + n + i % 2, sum[piece][c][i]);
    }
  };
};

}  // namespace graphc
