// cuda_host.h: just enough of CUDA for g++ to compile a generated kernel and run it on one core.
// The threads of a block are fibers, blocks run one after another, and a barrier switches to the
// next fiber. Asynchronous copies land as late as they may; until then their target holds NaN.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#define GRAPHC_SIM 1
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
  unsigned x, y, z;
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }

namespace host {

enum State { ready, at_block, at_warp, done };
struct Copy {
  void* to;
  const void* from;
  int bytes, size;
};
struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(64 << 10);
  State state = ready;
  std::deque<std::vector<Copy>> groups;
  std::vector<Copy> open;
};
inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline unsigned current;
inline unsigned long long slots[1024];
inline std::function<void()> body;

inline void wait(State state) {
  fibers[current].state = state;
  swapcontext(&fibers[current].context, &scheduler);
}
inline void enter() {
  body();
  fibers[current].state = done;
}
inline void fail(const char* message) {
  std::fprintf(stderr, "block %u %u: %s\n", blockIdx.x, blockIdx.y, message);
  std::abort();
}
// Makes fibers ready whose block, or whose warp, has arrived as a whole.
inline bool release(unsigned first, unsigned count, State state) {
  for (unsigned i = first; i < first + count; i++)
    if (fibers[i].state != state) return false;
  for (unsigned i = first; i < first + count; i++) fibers[i].state = ready;
  return true;
}
inline void run_block(unsigned threads, bool reverse) {
  if (fibers.size() < threads) fibers.resize(threads);
  for (unsigned i = 0; i < threads; i++) {
    Fiber& fiber = fibers[i];
    fiber.state = ready;
    fiber.groups.clear();
    fiber.open.clear();
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, enter, 0);
  }
  for (;;) {
    bool progress = false, live = false;
    for (unsigned step = 0; step < threads; step++) {
      current = reverse ? threads - 1 - step : step;
      if (fibers[current].state == ready) {
        threadIdx = {current, 0, 0};
        swapcontext(&scheduler, &fibers[current].context);
        progress = true;
      }
      live |= fibers[current].state != done;
    }
    if (!live) return;
    for (unsigned warp = 0; warp < threads; warp += 32) progress |= release(warp, 32, at_warp);
    progress |= release(0, threads, at_block);
    if (!progress) fail("some threads wait at a barrier that others do not reach");
  }
}
inline void launch(const std::function<void()>& kernel, const unsigned* grid, unsigned threads,
                   bool reverse) {
  body = kernel;
  blockDim = {threads, 1, 1};
  gridDim = {grid[0], grid[1], grid[2]};
  if (threads % 32 || threads > 1024) fail("expected whole warps");
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0]; x++) {
        const dim3 last{grid[0] - 1, grid[1] - 1, grid[2] - 1};
        blockIdx = reverse ? dim3{last.x - x, last.y - y, last.z - z} : dim3{x, y, z};
        run_block(threads, reverse);
      }
}
template <class... A, size_t... I>
void call(void (*kernel)(A...), void** a, std::index_sequence<I...>) {
  kernel(static_cast<A>(a[I])...);
}
template <class... A>
void start(void (*kernel)(A...), void** a, const unsigned* grid, unsigned threads, bool reverse) {
  launch([=] { call(kernel, a, std::index_sequence_for<A...>{}); }, grid, threads, reverse);
}

}  // namespace host

inline void __syncthreads() { host::wait(host::at_block); }
inline void __syncwarp(unsigned = 0xffffffffu) { host::wait(host::at_warp); }
inline unsigned __shfl_xor_sync(unsigned, unsigned value, int lanes) {
  const unsigned me = host::current;
  host::slots[me] = value;
  host::wait(host::at_warp);
  const unsigned other = static_cast<unsigned>(host::slots[me ^ lanes]);
  host::wait(host::at_warp);
  return other;
}
inline int __float_as_int(float x) {
  int bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float __int_as_float(int bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
template <class T>
T exchanged(T value, unsigned lane) {
  static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
  const unsigned me = host::current;
  std::memcpy(&host::slots[me], &value, sizeof(T));
  host::wait(host::at_warp);
  std::memcpy(&value, &host::slots[me / 32 * 32 + lane], sizeof(T));
  host::wait(host::at_warp);
  return value;
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return exchanged(value, lane);
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned distance) {
  const unsigned lane = host::current % 32;
  return exchanged(value, lane < distance ? lane : lane - distance);
}
inline unsigned __ballot_sync(unsigned, bool predicate) {
  const unsigned me = host::current;
  host::slots[me] = predicate;
  host::wait(host::at_warp);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; lane++)
    votes |= static_cast<unsigned>(host::slots[me / 32 * 32 + lane]) << lane;
  host::wait(host::at_warp);
  return votes;
}

inline void graphc_sim_copy_async(void* shared, const void* global, int bytes, int from_global) {
  if (reinterpret_cast<size_t>(shared) % bytes) host::fail("a copy's target is not aligned");
  if (from_global && reinterpret_cast<size_t>(global) % bytes) host::fail("a copy is not aligned");
  std::memset(shared, 0xff, bytes);
  host::fibers[host::current].open.push_back({shared, global, bytes, from_global});
}
inline void graphc_sim_copy_commit() {
  auto& fiber = host::fibers[host::current];
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}
inline void graphc_sim_copy_wait(int pending) {
  auto& groups = host::fibers[host::current].groups;
  while (static_cast<int>(groups.size()) > pending) {
    for (const host::Copy& copy : groups.front()) {
      std::memset(copy.to, 0, copy.bytes);
      std::memcpy(copy.to, copy.from, copy.size);
    }
    groups.pop_front();
  }
}
