// intrinsics.cuh: inline PTX as named device functions; what rounds is in rounding.cuh, and what needs
// more than sm_80 in bulk.cuh and warp_groups.cuh. Each has a C++ twin for a host that simulates the
// device, which defines GRAPHC_SIM and the graphc_sim_* functions below. Needs sm_75 and C++17, its
// products of bfloats and of tf32 sm_80. It includes no header of the toolkit or of the standard
// library.
#pragma once

// A GPU of compute capability 7.5, such as a T4, lacks cp.async, conversions to bfloats and of pairs,
// and max.NaN. A simulated one is asked for by GRAPHC_SIM_TURING.
#if defined(GRAPHC_SIM_TURING) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)
#define GRAPHC_TURING
#endif

#define GRAPHC_INLINE __device__ __forceinline__

#ifdef GRAPHC_SIM
// Starts a copy of `bytes` bytes to shared memory, of which the first `from_global` are read and
// the others are zero; ends the thread's group of copies; waits until at most `pending` groups of
// this thread have not ended.
void graphc_sim_copy_async(void* shared, const void* global, int bytes, int from_global);
void graphc_sim_copy_commit();
void graphc_sim_copy_wait(int pending);
// A warp's ldmatrix, and its mma of halves, bfloats or tf32 (kinds 0, 1, 2).
void graphc_sim_load_matrices(unsigned* to, const void* row, bool turned, const char* file,
                              int line);
void graphc_sim_multiply(int kind, float* sum, const unsigned* a, const unsigned* b,
                         const char* file, int line);
// Makes shared memory known to what reads it by itself.
void graphc_sim_proxy_fence();
// A barrier of the first `count` threads of a block, and one of all threads of a grid.
void graphc_sim_part_barrier(int count, const char* file, int line);
void graphc_sim_grid_barrier(const char* file, int line);
// Waits until another block has put a value in a word; asks whether it has; puts one there.
void graphc_sim_await_word(const unsigned* word, unsigned value, const char* file, int line);
bool graphc_sim_has_word(const unsigned* word, unsigned value, const char* file, int line);
void graphc_sim_put_word(unsigned* word, unsigned value);
// What all lanes do together says where it was called.
#define GRAPHC_CALLED_ALONE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define GRAPHC_CALLED , GRAPHC_CALLED_ALONE
#else
#define GRAPHC_CALLED_ALONE
#define GRAPHC_CALLED
#endif

namespace graphc {

// What every launch begins with. Where launches may begin early (GRAPHC_EARLY_LAUNCH, from sm_90 on)
// it waits until the launch before it has ended and what that wrote can be read; then the next one
// may begin, up to here. So nothing that another launch touches may be touched before.
GRAPHC_INLINE void begin_launch() {
#if !defined(GRAPHC_SIM) && defined(GRAPHC_EARLY_LAUNCH) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// threadIdx.x and blockIdx.x, read anew: what depends on them is computed again, and not kept in registers
// from before a loop, or from a part of a joined launch to the next that has the same test.
GRAPHC_INLINE unsigned thread_anew() {
#ifdef GRAPHC_SIM
  return threadIdx.x;
#else
  unsigned thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
#endif
}
GRAPHC_INLINE unsigned block_anew() {
#ifdef GRAPHC_SIM
  return blockIdx.x;
#else
  unsigned block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return block;
#endif
}

#ifdef GRAPHC_TURING
// Moves Bytes to shared memory, of which the first `live` are read and the others are zeros.
template <int Bytes>
GRAPHC_INLINE void copy_by_registers(void* shared, const void* global, int live) {
  struct alignas(Bytes) Piece {
    unsigned word[Bytes / 4];
  } piece = {};
  if (live == Bytes) piece = *static_cast<const Piece*>(global);
  else
#pragma unroll
    for (int i = 0; i < Bytes; i++)
      if (i < live)
        piece.word[i / 4] |= static_cast<unsigned>(static_cast<const unsigned char*>(global)[i])
                             << i % 4 * 8;
  *static_cast<Piece*>(shared) = piece;
}
#endif

// Starts to move Bytes from global to shared memory, of which the first `live` are read and the
// others are zeros; both addresses must be multiples of Bytes. What the block reads `Again` is kept
// in L1; other copies of 16 bytes pass it by.
template <int Bytes, bool Again = false>
GRAPHC_INLINE void copy_async(void* shared, const void* global, int live) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async moves 4, 8 or 16 bytes");
#ifdef GRAPHC_TURING
  copy_by_registers<Bytes>(shared, global, live);
#elif defined(GRAPHC_SIM)
  graphc_sim_copy_async(shared, global, Bytes, live);
#else
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (Bytes == 16 && !Again)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(live)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(global), "r"(live),
                 "n"(Bytes)
                 : "memory");
#endif
}

// The V that lies at element i of a tile in shared memory. Its place is a sum of 32 bits, which all of
// shared memory fits: compilers differ in that, and those of 64 bits are held in registers instead.
template <class V, class T>
GRAPHC_INLINE V& shared_at(T* tile, int i) {
#ifdef GRAPHC_SIM
  return *reinterpret_cast<V*>(tile + i);
#else
  const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(tile));
  return *static_cast<V*>(__cvta_shared_to_generic(first + i * unsigned(sizeof(T))));
#endif
}

// Ends a group of this thread's copies; a group may be empty.
GRAPHC_INLINE void copy_commit() {
#ifdef GRAPHC_TURING
#elif defined(GRAPHC_SIM)
  graphc_sim_copy_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most Pending groups of this thread's copies are under way.
template <int Pending>
GRAPHC_INLINE void copy_wait() {
#ifdef GRAPHC_TURING
#elif defined(GRAPHC_SIM)
  graphc_sim_copy_wait(Pending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

// The number, of which the compiler knows nothing: what is done so often is a loop, which threads that
// have nothing to do pass by, where it would make instructions that all issue.
GRAPHC_INLINE int unknown(int number) {
#ifndef GRAPHC_SIM
  asm volatile("" : "+r"(number));
#endif
  return number;
}

// Waits for the first Threads threads of the block, whole warps, of which the caller is one.
template <int Threads>
GRAPHC_INLINE void part_barrier(GRAPHC_CALLED_ALONE) {
  static_assert(Threads % 32 == 0, "whole warps");
#ifdef GRAPHC_SIM
  graphc_sim_part_barrier(Threads, file, line);
#else
  asm volatile("bar.sync 1, %0;" ::"n"(Threads) : "memory");
#endif
}

// Waits for all threads of a cooperative launch, and makes what each wrote before known to all. The
// word, of which there is one per launch at a time, is zero at first. Its highest bit is turned by
// each barrier: block 0 adds what the arrivals of the others lack of that bit.
GRAPHC_INLINE void grid_barrier(unsigned* word GRAPHC_CALLED) {
#ifdef GRAPHC_SIM
  graphc_sim_grid_barrier(file, line);
#else
  constexpr unsigned turn = 0x80000000u;
  __syncthreads();
  if (thread_anew() == 0) {
    unsigned before, now;
    const unsigned add = block_anew() == 0 ? turn - (gridDim.x - 1) : 1;
    // A release also covers what this thread knows of by the barrier of its block.
    asm volatile("fence.acq_rel.gpu;\n\tatom.add.relaxed.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(add)
                 : "memory");
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    while (!((before ^ now) & turn));
  }
  __syncthreads();
#endif
}

// Orders what this thread did before, and what its block did before a barrier that it has passed, with
// what other blocks do behind a fence, if one atomic operation of both lies between the two fences.
GRAPHC_INLINE void device_fence() {
#ifdef GRAPHC_SIM
  __threadfence();
#else
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

// Waits until a word of memory is `value`. What the block that put it did before the fence it passed is
// then known to this thread, and to its block behind the next barrier. It must be a block of a lower
// number, as those begin first: any other may have to wait for this one to end.
GRAPHC_INLINE void await_word(const unsigned* word, unsigned value GRAPHC_CALLED) {
#ifdef GRAPHC_SIM
  graphc_sim_await_word(word, value, file, line);
#else
  unsigned now;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
  while (now != value);
#endif
}
// Whether a word is `value`; if so, what a wait for it makes known is.
GRAPHC_INLINE bool has_word(const unsigned* word, unsigned value GRAPHC_CALLED) {
#ifdef GRAPHC_SIM
  return graphc_sim_has_word(word, value, file, line);
#else
  unsigned now;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
  return now == value;
#endif
}
GRAPHC_INLINE void put_word(unsigned* word, unsigned value) {
#ifdef GRAPHC_SIM
  graphc_sim_put_word(word, value);
#else
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#endif
}

// Four 8 x 8 matrices of two-byte elements from shared memory. Lane l names row l % 8, 16 aligned
// bytes, of matrix l / 8; to[j] gets the neighbours 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of
// matrix j, or of its column l / 4 if Turned.
template <bool Turned>
GRAPHC_INLINE void load_matrices(unsigned (&to)[4], const void* row GRAPHC_CALLED) {
#ifdef GRAPHC_SIM
  graphc_sim_load_matrices(to, row, Turned, file, line);
#else
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (Turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
#endif
}

// What a warp's tensor cores add to sum: the product by `instruction`, whose `kind` the twin knows.
#ifdef GRAPHC_SIM
#define GRAPHC_MULTIPLY(kind, instruction) graphc_sim_multiply(kind, sum, a, b, file, line)
#else
#define GRAPHC_MULTIPLY(kind, instruction)                              \
  asm volatile("mma.sync.aligned." instruction                          \
               " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#endif

// sum[16][8] += a[16][16] b[16][8], a and b of halves or of bfloats. What a lane holds is in
// runtime/sim/host/matrices.h.
GRAPHC_INLINE void multiply_halves(float (&sum)[4], const unsigned (&a)[4],
                                   const unsigned (&b)[2] GRAPHC_CALLED) {
  GRAPHC_MULTIPLY(0, "m16n8k16.row.col.f32.f16.f16.f32");
}
GRAPHC_INLINE void multiply_bfloats(float (&sum)[4], const unsigned (&a)[4],
                                    const unsigned (&b)[2] GRAPHC_CALLED) {
  GRAPHC_MULTIPLY(1, "m16n8k16.row.col.f32.bf16.bf16.f32");
}
// sum[16][8] += a[16][8] b[8][8], a and b of tf32: floats whose 13 low bits are not looked at.
GRAPHC_INLINE void multiply_tf32(float (&sum)[4], const unsigned (&a)[4],
                                 const unsigned (&b)[2] GRAPHC_CALLED) {
  GRAPHC_MULTIPLY(2, "m16n8k8.row.col.f32.tf32.tf32.f32");
}
// sum[16][8] += a[16][4] b[4][8]: the first half of those.
GRAPHC_INLINE void multiply_tf32(float (&sum)[4], const unsigned (&a)[2],
                                 unsigned b GRAPHC_CALLED) {
#ifdef GRAPHC_SIM
  const unsigned whole[4] = {a[0], a[1], 0, 0}, column[2] = {b, 0};
  graphc_sim_multiply(2, sum, whole, column, file, line);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"
      " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
#endif
}
#undef GRAPHC_MULTIPLY

// Makes what this thread wrote to shared memory, also by copies that it has waited for, known to
// products of warp groups that begin behind the next barrier: they read it "by the asynchronous
// proxy". Needs sm_90.
GRAPHC_INLINE void fence_async_proxy() {
#ifdef GRAPHC_SIM
  graphc_sim_proxy_fence();
#else
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace graphc
