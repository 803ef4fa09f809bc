// device.h: the built-ins of a CUDA compiler, for g++. Included before the text of a kernel, it
// lets that text compile unchanged; operations of several threads, and what the simulator observes,
// call into simulator.cpp. It includes no header, so that a kernel compiles in a few hundredths of
// a second. PTX has twins under GRAPHC_SIM in kernels/cuda/shared/intrinsics.cuh.
#pragma once

#define GRAPHC_SIM 1
#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __managed__
// In a block `thread_local` implies `static`; and `extern thread_local T x[]` is legal too, which
// stands for dynamic shared memory. One thread of the system runs a launch, so all share it.
#define __shared__ thread_local
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))

using graphc_sim_size = decltype(sizeof(0));
using graphc_sim_word = unsigned long long;

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
};
enum { warpSize = 32 };

#define GRAPHC_SIM_VECTORS(type, name, align2, align4)                        \
  struct alignas(align2) name##2 { type x, y; };                              \
  struct name##3 { type x, y, z; };                                           \
  struct alignas(align4) name##4 { type x, y, z, w; };                        \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
GRAPHC_SIM_VECTORS(float, float, 8, 16)
GRAPHC_SIM_VECTORS(double, double, 16, 16)
GRAPHC_SIM_VECTORS(int, int, 8, 16)
GRAPHC_SIM_VECTORS(short, short, 4, 8)
GRAPHC_SIM_VECTORS(signed char, char, 2, 4)
GRAPHC_SIM_VECTORS(unsigned char, uchar, 2, 4)
#undef GRAPHC_SIM_VECTORS
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

#pragma GCC visibility push(default)
extern "C" {
// They change under the text only while it waits, and then back.
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;

int graphc_sim_barrier(int kind, int predicate, const char* file, int line);
void graphc_sim_warp_barrier(unsigned mask, const char* file, int line);
graphc_sim_word graphc_sim_shuffle(int kind, unsigned mask, graphc_sim_word value, unsigned lane,
                                   int width, const char* file, int line);
unsigned graphc_sim_vote(unsigned mask, int predicate, const char* file, int line);
// Calls work(lanes) once, when all 32 lanes have come with the addresses of their payloads.
void graphc_sim_together(void (*work)(void** lanes), void* payload, const char* file, int line);
// Both sides of a read-modify-write of `bytes` bytes, which nothing interrupts.
void graphc_sim_atomic(void* address, int bytes);
void graphc_sim_device_fence();
}
#pragma GCC visibility pop

// Not in the namespace of any text, and declared again by kernels/cuda/shared/intrinsics.cuh.
__attribute__((visibility("default"))) void graphc_sim_copy_async(void* shared, const void* global,
                                                                  int bytes, int from_global);
__attribute__((visibility("default"))) void graphc_sim_copy_commit();
__attribute__((visibility("default"))) void graphc_sim_copy_wait(int pending);
__attribute__((visibility("default"))) void graphc_sim_part_barrier(int count, const char* file,
                                                                    int line);
__attribute__((visibility("default"))) void graphc_sim_grid_barrier(const char* file, int line);
__attribute__((visibility("default"))) void graphc_sim_await_word(const unsigned* word,
                                                                  unsigned value, const char* file,
                                                                  int line);
__attribute__((visibility("default"))) bool graphc_sim_has_word(const unsigned* word,
                                                                unsigned value, const char* file,
                                                                int line);
__attribute__((visibility("default"))) void graphc_sim_put_word(unsigned* word, unsigned value);
__attribute__((visibility("default"))) void graphc_sim_load_matrices(unsigned* to, const void* row,
                                                                     bool turned, const char* file,
                                                                     int line);
__attribute__((visibility("default"))) void graphc_sim_multiply(int kind, float* sum,
                                                                const unsigned* a,
                                                                const unsigned* b, const char* file,
                                                                int line);
__attribute__((visibility("default"))) void graphc_sim_group_multiply(int kind, float* sum,
                                                                      const void* a, const void* b,
                                                                      int k, bool a_along_k,
                                                                      bool b_along_k,
                                                                      const char* file, int line);
__attribute__((visibility("default"))) void graphc_sim_group_fence();
__attribute__((visibility("default"))) void graphc_sim_group_commit();
__attribute__((visibility("default"))) void graphc_sim_group_wait(int pending);
__attribute__((visibility("default"))) void graphc_sim_proxy_fence();
__attribute__((visibility("default"))) void graphc_sim_phase_begin(void* barrier, int arrivals);
__attribute__((visibility("default"))) void graphc_sim_phase_fence();
__attribute__((visibility("default"))) void graphc_sim_phase_expect(void* barrier, int bytes);
__attribute__((visibility("default"))) void graphc_sim_phase_arrive(void* barrier, int rank);
__attribute__((visibility("default"))) void graphc_sim_phase_wait(void* barrier, int parity,
                                                                  const char* file, int line);
__attribute__((visibility("default"))) void graphc_sim_bulk_copy(void* to, const void* map, int x,
                                                                 int y, void* barrier, int blocks);
__attribute__((visibility("default"))) int graphc_sim_cluster_rank();
__attribute__((visibility("default"))) void graphc_sim_cluster_arrive();
__attribute__((visibility("default"))) void graphc_sim_cluster_wait(const char* file, int line);
__attribute__((visibility("default"))) void graphc_sim_cluster_read(void* to, const void* from,
                                                                    int bytes, int rank);

#define GRAPHC_SIM_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(GRAPHC_SIM_PLACE) { graphc_sim_barrier(0, 0, file, line); }
inline int __syncthreads_count(int predicate, GRAPHC_SIM_PLACE) {
  return graphc_sim_barrier(1, predicate, file, line);
}
inline int __syncthreads_and(int predicate, GRAPHC_SIM_PLACE) {
  return graphc_sim_barrier(2, predicate, file, line);
}
inline int __syncthreads_or(int predicate, GRAPHC_SIM_PLACE) {
  return graphc_sim_barrier(3, predicate, file, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, GRAPHC_SIM_PLACE) {
  graphc_sim_warp_barrier(mask, file, line);
}
inline void __threadfence() { graphc_sim_device_fence(); }
inline void __threadfence_block() {}

template <class T>
inline graphc_sim_word graphc_sim_bits(T value) {
  static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
  graphc_sim_word bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
inline T graphc_sim_value(graphc_sim_word bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
#define GRAPHC_SIM_SHUFFLE(name, kind, Lane)                                                  \
  template <class T>                                                                          \
  inline T name(unsigned mask, T value, Lane lane, int width = 32, GRAPHC_SIM_PLACE) {        \
    return graphc_sim_value<T>(graphc_sim_shuffle(                                            \
        kind, mask, graphc_sim_bits(value), static_cast<unsigned>(lane), width, file, line)); \
  }
GRAPHC_SIM_SHUFFLE(__shfl_sync, 0, int)
GRAPHC_SIM_SHUFFLE(__shfl_up_sync, 1, unsigned)
GRAPHC_SIM_SHUFFLE(__shfl_down_sync, 2, unsigned)
GRAPHC_SIM_SHUFFLE(__shfl_xor_sync, 3, int)
#undef GRAPHC_SIM_SHUFFLE

inline unsigned __ballot_sync(unsigned mask, int predicate, GRAPHC_SIM_PLACE) {
  return graphc_sim_vote(mask, predicate, file, line);
}
inline int __any_sync(unsigned mask, int predicate, GRAPHC_SIM_PLACE) {
  return graphc_sim_vote(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, GRAPHC_SIM_PLACE) {
  return graphc_sim_vote(mask, !predicate, file, line) == 0;
}

// No other thread runs between the two sides of an atomic operation. They are not instrumented: the
// simulator is told of the access as a whole, from where the text has it.
#define GRAPHC_SIM_WHOLE __attribute__((no_sanitize("thread"))) inline
template <class T>
GRAPHC_SIM_WHOLE T graphc_sim_get(const T* address) {
  return *address;
}
template <class T>
GRAPHC_SIM_WHOLE void graphc_sim_set(T* address, T value) {
  *address = value;
}
#define GRAPHC_SIM_ATOMIC(name, result)         \
  template <class T>                            \
  __forceinline__ T name(T* address, T value) { \
    graphc_sim_atomic(address, sizeof(T));      \
    const T old = graphc_sim_get(address);      \
    graphc_sim_set(address, T(result));         \
    return old;                                 \
  }
GRAPHC_SIM_ATOMIC(atomicAdd, old + value)
GRAPHC_SIM_ATOMIC(atomicMax, old > value ? old : value)
GRAPHC_SIM_ATOMIC(atomicMin, old < value ? old : value)
GRAPHC_SIM_ATOMIC(atomicExch, value)
GRAPHC_SIM_ATOMIC(atomicAnd, old& value)
GRAPHC_SIM_ATOMIC(atomicOr, old | value)
GRAPHC_SIM_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
#undef GRAPHC_SIM_ATOMIC
template <class T>
__forceinline__ T atomicCAS(T* address, T expected, T value) {
  graphc_sim_atomic(address, sizeof(T));
  const T old = graphc_sim_get(address);
  if (old == expected) graphc_sim_set(address, value);
  return old;
}

template <class T>
inline T __ldg(const T* p) {
  return *p;
}

extern "C" {
#define GRAPHC_SIM_MATH(name)    \
  float name##f(float) noexcept; \
  double name(double) noexcept;
GRAPHC_SIM_MATH(acos)
GRAPHC_SIM_MATH(acosh)
GRAPHC_SIM_MATH(asin)
GRAPHC_SIM_MATH(asinh)
GRAPHC_SIM_MATH(atan)
GRAPHC_SIM_MATH(atanh)
GRAPHC_SIM_MATH(cbrt)
GRAPHC_SIM_MATH(ceil)
GRAPHC_SIM_MATH(rint)
GRAPHC_SIM_MATH(trunc)
GRAPHC_SIM_MATH(cos)
GRAPHC_SIM_MATH(tan)
GRAPHC_SIM_MATH(asin)
GRAPHC_SIM_MATH(acos)
GRAPHC_SIM_MATH(atan)
GRAPHC_SIM_MATH(sinh)
GRAPHC_SIM_MATH(cosh)
GRAPHC_SIM_MATH(asinh)
GRAPHC_SIM_MATH(acosh)
GRAPHC_SIM_MATH(atanh)
GRAPHC_SIM_MATH(cosh)
GRAPHC_SIM_MATH(erf)
GRAPHC_SIM_MATH(erfc)
GRAPHC_SIM_MATH(exp)
GRAPHC_SIM_MATH(exp2)
GRAPHC_SIM_MATH(expm1)
GRAPHC_SIM_MATH(fabs)
GRAPHC_SIM_MATH(floor)
GRAPHC_SIM_MATH(lgamma)
GRAPHC_SIM_MATH(log)
GRAPHC_SIM_MATH(log10)
GRAPHC_SIM_MATH(log1p)
GRAPHC_SIM_MATH(log2)
GRAPHC_SIM_MATH(log10)
GRAPHC_SIM_MATH(nearbyint)
GRAPHC_SIM_MATH(rint)
GRAPHC_SIM_MATH(round)
GRAPHC_SIM_MATH(sin)
GRAPHC_SIM_MATH(sinh)
GRAPHC_SIM_MATH(sqrt)
GRAPHC_SIM_MATH(tan)
GRAPHC_SIM_MATH(tanh)
GRAPHC_SIM_MATH(tgamma)
GRAPHC_SIM_MATH(trunc)
#undef GRAPHC_SIM_MATH
#define GRAPHC_SIM_MATH(name)           \
  float name##f(float, float) noexcept; \
  double name(double, double) noexcept;
GRAPHC_SIM_MATH(atan2)
GRAPHC_SIM_MATH(copysign)
GRAPHC_SIM_MATH(fmax)
GRAPHC_SIM_MATH(fmin)
GRAPHC_SIM_MATH(fmod)
GRAPHC_SIM_MATH(hypot)
GRAPHC_SIM_MATH(nextafter)
GRAPHC_SIM_MATH(pow)
GRAPHC_SIM_MATH(remainder)
#undef GRAPHC_SIM_MATH
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<graphc_sim_word>(a) * b >> 32);
}
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline graphc_sim_size __cvta_generic_to_shared(const void* p) {
  return reinterpret_cast<graphc_sim_size>(p);
}

// The end of every file. A kernel's arguments lie one after another, aligned to their sizes.
namespace graphc_sim {

template <class T>
__attribute__((no_sanitize("thread"))) T next(const unsigned char* packed, unsigned& at) {
  at = (at + alignof(T) - 1) / alignof(T) * alignof(T);
  T value;
  __builtin_memcpy(&value, packed + at, sizeof(T));
  at += sizeof(T);
  return value;
}
// In a list in braces the arguments are taken from left to right.
template <class... Arguments>
struct Call {
  __attribute__((no_sanitize("thread"), always_inline)) Call(void (*kernel)(Arguments...),
                                                             Arguments... arguments) {
    kernel(arguments...);
  }
};
template <class... Arguments>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(Arguments...),
                                                 const unsigned char* packed) {
  [[maybe_unused]] unsigned at = 0;
  Call<Arguments...>{kernel, next<Arguments>(packed, at)...};
}
template <class... Arguments>
unsigned packed_bytes(void (*)(Arguments...)) {
  unsigned at = 0;
  ((at = (at + alignof(Arguments) - 1) / alignof(Arguments) * alignof(Arguments) +
         sizeof(Arguments)),
   ...);
  return at;
}

// What -ftz says to a CUDA compiler. A double below the smallest normal one is flushed too, which a
// GPU keeps.
inline void set_mode() {
#ifdef GRAPHC_SIM_KEEP_DENORMALS
  __builtin_ia32_ldmxcsr(0x1f80);
#else
  __builtin_ia32_ldmxcsr(0x9fc0);
#endif
}

}  // namespace graphc_sim

#define GRAPHC_SIM_VISIBLE extern "C" __attribute__((visibility("default")))
#define GRAPHC_SIM_KERNEL(name, threads, blocks)                               \
  GRAPHC_SIM_VISIBLE void graphc_sim_run_##name(const unsigned char* packed) { \
    graphc_sim::set_mode();                                                    \
    graphc_sim::call(&graphc::name, packed);                                   \
  }                                                                            \
  GRAPHC_SIM_VISIBLE unsigned graphc_sim_packed_##name() {                     \
    return graphc_sim::packed_bytes(&graphc::name);                            \
  }                                                                            \
  GRAPHC_SIM_VISIBLE unsigned graphc_sim_cluster_##name() { return blocks; }   \
  GRAPHC_SIM_VISIBLE unsigned graphc_sim_threads_##name() { return threads; }
// Touching one variable makes the system give this thread its shared memory.
#define GRAPHC_SIM_MODULE(dynamic)                                          \
  static thread_local char graphc_sim_first;                                \
  GRAPHC_SIM_VISIBLE void* graphc_sim_touch() { return &graphc_sim_first; } \
  GRAPHC_SIM_VISIBLE void* graphc_sim_dynamic() { return dynamic; }         \
  GRAPHC_SIM_CHECKED
#ifdef GRAPHC_SIM_CHECK
#define GRAPHC_SIM_CHECKED \
  GRAPHC_SIM_VISIBLE void graphc_sim_checked() {}
#else
#define GRAPHC_SIM_CHECKED
#endif
// Room for `extern __shared__ T name[]`, the most that a launch can ask for.
#define GRAPHC_SIM_DYNAMIC(name)                                                                 \
  asm(".section .tbss,\"awT\",@nobits\n.balign 1024\n.globl " #name "\n.hidden " #name           \
      "\n.type " #name ",@object\n.size " #name ",232448\n" #name ":\n.zero 232448\n.previous"); \
  extern thread_local char graphc_sim_dynamic_##name __asm__(#name);
