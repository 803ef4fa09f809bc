// warp_groups.cuh: asynchronous products of a warp group (four warps), which read shared memory
// themselves (wgmma). As in intrinsics.cuh each function has a host twin; all of it needs sm_90a.
#pragma once
#include "cuda/shared/intrinsics.cuh"

#ifdef GRAPHC_SIM
// A warp's part of a wgmma of halves or bfloats, that it may begin, what ends a group of them, and
// the wait for all but the last `pending` groups.
void graphc_sim_group_multiply(int kind, float* sum, const void* a, const void* b, int k,
                               bool a_along_k, bool b_along_k, const char* file, int line);
void graphc_sim_group_fence();
void graphc_sim_group_commit();
void graphc_sim_group_wait(int pending);
#endif

namespace graphc {

// Before the first product after a thread touched its sums; the end of a group of products; the wait
// until at most Pending groups are under way. Sums may be touched only when none is.
GRAPHC_INLINE void group_fence() {
#ifdef GRAPHC_SIM
  graphc_sim_group_fence();
#else
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
GRAPHC_INLINE void group_commit() {
#ifdef GRAPHC_SIM
  graphc_sim_group_commit();
#else
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int Pending>
GRAPHC_INLINE void group_wait() {
#ifdef GRAPHC_SIM
  graphc_sim_group_wait(Pending);
#else
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
#endif
}

#ifndef GRAPHC_SIM
// Says where 64 lines of 128 bytes lie in shared memory, from an address that 1024 divides on, their
// chunks of 16 bytes permuted by the number of the line (a matrix descriptor of the PTX ISA): lines
// of k for 64 rows, or of 64 rows for each k, from k on. The next 64 rows are 8192 bytes further.
template <bool AlongK>
GRAPHC_INLINE unsigned long long panel_descriptor(const void* tile, int k) {
  const unsigned at =
      static_cast<unsigned>(__cvta_generic_to_shared(tile)) + (AlongK ? k * 2 : k * 128);
  constexpr unsigned long long eight_lines = 1024 >> 4, panel = AlongK ? 1 : 8192 >> 4;
  return (at >> 4 & 0x3fffu) | panel << 16 | eight_lines << 32 | 1ull << 62;
}
#endif

#ifndef GRAPHC_SIM
#define GRAPHC_SUMS(i) "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
#define GRAPHC_GROUP_MULTIPLY(type)                                                            \
  asm volatile(                                                                                \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                             \
      " {"                                                                                     \
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
      "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,"   \
      "%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "         \
      "%64, %65, 1, 1, 1, %66, %67;"                                                           \
      : GRAPHC_SUMS(0), GRAPHC_SUMS(1), GRAPHC_SUMS(2), GRAPHC_SUMS(3), GRAPHC_SUMS(4),        \
        GRAPHC_SUMS(5), GRAPHC_SUMS(6), GRAPHC_SUMS(7), GRAPHC_SUMS(8), GRAPHC_SUMS(9),        \
        GRAPHC_SUMS(10), GRAPHC_SUMS(11), GRAPHC_SUMS(12), GRAPHC_SUMS(13), GRAPHC_SUMS(14),   \
        GRAPHC_SUMS(15)                                                                        \
      : "l"(from_a), "l"(from_b), "n"(!AlongA), "n"(!AlongB)                                   \
      : "memory")
#endif

// Starts sum[64][128] += a[64][16] b[16][128], of halves or bfloats (kind 0 or 1), from k on of tiles
// in shared memory, in lines as panel_descriptor has them. A lane holds of each warp's 16 rows what it
// holds of mma.sync's sums, of 16 times eight columns.
template <int Kind, bool AlongA, bool AlongB>
GRAPHC_INLINE void group_multiply(float (&sum)[16][4], const void* a, const void* b,
                                  int k GRAPHC_CALLED) {
#ifdef GRAPHC_SIM
  graphc_sim_group_multiply(Kind, sum[0], a, b, k, AlongA, AlongB, file, line);
#else
  const unsigned long long from_a = panel_descriptor<AlongA>(a, k);
  const unsigned long long from_b = panel_descriptor<AlongB>(b, k);
  if constexpr (Kind == 0) GRAPHC_GROUP_MULTIPLY("f16");
  else GRAPHC_GROUP_MULTIPLY("bf16");
#endif
}
// Sums are what the products behind the last wait have made of them.
GRAPHC_INLINE void group_sums(float (&sum)[16][4]) {
#ifndef GRAPHC_SIM
#pragma unroll
  for (int i = 0; i < 16; i++) asm volatile("" : GRAPHC_SUMS(i)::"memory");
#endif
}
#undef GRAPHC_SUMS
#undef GRAPHC_GROUP_MULTIPLY

}  // namespace graphc
