// bulk.cuh: copies of whole tiles, which one thread starts and TMA performs (cp.async.bulk.tensor),
// barriers that count their bytes (mbarrier), and clusters of blocks, which share copied tiles and
// read each other's shared memory. As in intrinsics.cuh each function has a host twin; all of it
// needs sm_90.
//
// A barrier is a word of shared memory. Its phase ends when so many arrivals have come as it was
// told at first, and as many bytes as they said; it then waits for the next. A thread waits for the
// end of a phase by its parity: 0 for the first, 1 for the second, 0 for the third.
#pragma once
#include "cuda/shared/intrinsics.cuh"

#ifdef GRAPHC_SIM
void graphc_sim_phase_begin(void* barrier, int arrivals);
void graphc_sim_phase_fence();
void graphc_sim_phase_expect(void* barrier, int bytes);
void graphc_sim_phase_arrive(void* barrier, int rank);
void graphc_sim_phase_wait(void* barrier, int parity, const char* file, int line);
void graphc_sim_bulk_copy(void* to, const void* map, int x, int y, void* barrier, int blocks);
int graphc_sim_cluster_rank();
void graphc_sim_cluster_arrive();
void graphc_sim_cluster_wait(const char* file, int line);
void graphc_sim_cluster_read(void* to, const void* from, int bytes, int rank);
#endif

namespace graphc {

// How a matrix lies in global memory, in which parts it is copied and how those lie in shared memory:
// a CUtensorMap, made by the host. A kernel has it as a `const __grid_constant__` parameter.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};
using BulkBarrier = unsigned long long;

#ifndef GRAPHC_SIM
GRAPHC_INLINE unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
#endif

// Lets the barrier wait for so many arrivals in each phase. Others may use it behind phase_fence and a
// barrier of the block, or of the cluster if its other blocks do.
GRAPHC_INLINE void phase_begin(BulkBarrier* barrier, int arrivals) {
#ifdef GRAPHC_SIM
  graphc_sim_phase_begin(barrier, arrivals);
#else
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
#endif
}
GRAPHC_INLINE void phase_fence() {
#ifdef GRAPHC_SIM
  graphc_sim_phase_fence();
#else
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Arrives, and says that so many bytes are copied in this phase.
GRAPHC_INLINE void phase_expect(BulkBarrier* barrier, int bytes) {
#ifdef GRAPHC_SIM
  graphc_sim_phase_expect(barrier, bytes);
#else
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}

// Arrives at the barrier that lies at the same place in the memory of block `rank` of the cluster. That
// says what this thread has waited for has ended; other blocks need not see what it wrote.
GRAPHC_INLINE void phase_arrive(BulkBarrier* barrier, int rank) {
#ifdef GRAPHC_SIM
  graphc_sim_phase_arrive(barrier, rank);
#else
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
#endif
}

// Waits until the phase of this parity has ended: what was copied, or written in this block, before
// that can be seen then.
GRAPHC_INLINE void phase_wait(BulkBarrier* barrier, int parity GRAPHC_CALLED) {
#ifdef GRAPHC_SIM
  graphc_sim_phase_wait(barrier, parity, file, line);
#else
  unsigned ended;
  do
    asm volatile(
        "{\n\t.reg .pred ended;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, ended;\n\t}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  while (!ended);
#endif
}

// Starts to copy the map's part that begins at element x of line y; what lies outside of the matrix is
// zero. Its bytes count at the barrier. With `blocks`, a bit for each block of the cluster, they are
// copied to the same place in the memory of all of these, and count at the barrier of each.
template <bool Several>
GRAPHC_INLINE void bulk_copy(void* to, const TensorMap& map, int x, int y, BulkBarrier* barrier,
                             int blocks) {
#ifdef GRAPHC_SIM
  graphc_sim_bulk_copy(to, &map, x, y, barrier, Several ? blocks : 0);
#else
  if constexpr (Several)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
        "l"(&map), "r"(x), "r"(y), "r"(shared_address(barrier)),
        "h"(static_cast<unsigned short>(blocks))
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
        "l"(&map), "r"(x), "r"(y), "r"(shared_address(barrier))
        : "memory");
#endif
}

// The number of this block in its cluster.
GRAPHC_INLINE int cluster_rank() {
#ifdef GRAPHC_SIM
  return graphc_sim_cluster_rank();
#else
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
#endif
}
// A barrier of all threads of the cluster, in two halves: no thread passes the second before all
// have come to the first.
GRAPHC_INLINE void cluster_arrive() {
#ifdef GRAPHC_SIM
  graphc_sim_cluster_arrive();
#else
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
GRAPHC_INLINE void cluster_wait(GRAPHC_CALLED_ALONE) {
#ifdef GRAPHC_SIM
  graphc_sim_cluster_wait(file, line);
#else
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
// What lies at this place in the shared memory of block `rank` of the cluster: 4 or 16 bytes. A barrier
// of the cluster lies between that and the store, and another before that block ends.
template <class T>
GRAPHC_INLINE T cluster_read(const T* from, int rank) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 16, "a word, or four");
  union {
    T value;
    unsigned word[sizeof(T) / 4];
  } both;
#ifdef GRAPHC_SIM
  graphc_sim_cluster_read(&both.value, from, sizeof(T), rank);
#else
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(from)), "r"(rank));
  if constexpr (sizeof(T) == 4)
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(both.word[0]) : "r"(there) : "memory");
  else
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(both.word[0]), "=r"(both.word[1]), "=r"(both.word[2]), "=r"(both.word[3])
                 : "r"(there)
                 : "memory");
#endif
  return both.value;
}

}  // namespace graphc
