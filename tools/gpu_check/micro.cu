// micro.cu: kernels that do one thing so often that its time can be told, for calibration.py. Each
// comes in two sizes, as NAME_COUNT, whose counts are literals, so that the model can walk them.
#include "cuda/shared/intrinsics.cuh"
#include "cuda/shared/warp_groups.cuh"

using namespace graphc;

// A chain of pointers, which only the first thread follows, from where the launch before ended.
template <int Count>
__device__ void chase(void*** cursor) {
  if (threadIdx.x) return;
  void** at = *cursor;
#pragma unroll 16
  for (int i = 0; i < Count; i++) at = static_cast<void**>(*at);
  *cursor = at;
}

// The same in shared memory; `next` has the offsets of 64 words in bytes. The model pays for these
// loads once per block of code, so each is one.
template <int Count>
__device__ void chase_shared(const int* next, int* end) {
  __shared__ int ring[64];
  for (int i = threadIdx.x; i < 64; i += blockDim.x) ring[i] = next[i];
  __syncthreads();
  int at = 0;
#pragma unroll 1
  for (int i = 0; i < Count; i++)
    at = *reinterpret_cast<const int*>(reinterpret_cast<const char*>(ring) + at);
  *end = at;
}

template <int Count>
__device__ void barriers() {
#pragma unroll 16
  for (int i = 0; i < Count; i++) __syncthreads();
}

template <int Count>
__device__ void shuffles(int* end) {
  int at = end[threadIdx.x];
#pragma unroll 16
  for (int i = 0; i < Count; i++) at = __shfl_xor_sync(0xffffffffu, at, 1);
  end[threadIdx.x] = at;
}

// Each block reads another part of `values` in each of Count passes, so that L1 has none of it.
template <int Count>
__device__ void read(const float4* values, const int* count, float* end) {
  const int part = *count / gridDim.x;
  float sum = 0;
#pragma unroll 1
  for (int pass = 0; pass < Count; pass++) {
    const float4* mine = values + (blockIdx.x + pass * 7) % gridDim.x * part;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const float4 x = mine[i * blockDim.x + threadIdx.x];
      sum += x.x + x.y + x.z + x.w;
    }
  }
  if (sum < 0) *end = sum;
}

// Fused multiply-adds, of which eight at a time are independent: 64 * Count.
template <int Count>
__device__ void adds(const float* factors, float* end) {
  float sums[8] = {};
  const float a = factors[0], b = factors[1];
#pragma unroll 1
  for (int i = 0; i < Count; i++)
#pragma unroll
    for (int j = 0; j < 64; j++) sums[j % 8] = fmaf(sums[j % 8], a, b);
  float sum = 0;
  for (float each : sums) sum += each;
  if (sum < 0) *end = sum;
}

#if defined(GRAPHC_SIM) || __CUDA_ARCH__ >= 800
// Products of tensor cores, of which eight at a time are independent: 16 * Count.
template <int Count, bool Wide>
__device__ void products(const unsigned* words, float* end) {
  float sums[8][4] = {};
  const unsigned a[4] = {words[0], words[1], words[2], words[3]}, b[2] = {words[4], words[5]};
#pragma unroll 1
  for (int i = 0; i < Count; i++)
#pragma unroll
    for (int j = 0; j < 16; j++)
      if constexpr (Wide) multiply_tf32(sums[j % 8], a, b);
      else multiply_bfloats(sums[j % 8], a, b);
  float sum = 0;
  for (auto& each : sums) sum += each[0] + each[1] + each[2] + each[3];
  if (sum < 0) *end = sum;
}

#endif

extern "C" __global__ void empty(int*) {}

// Makes one ring of pointers, `spec` being their number, the bytes from one to the next and how many
// further each points.
extern "C" __global__ void link(char* first, const long long* spec) {
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < spec[0]; i += step)
    *reinterpret_cast<char**>(first + i * spec[1]) = first + (i + spec[2]) % spec[0] * spec[1];
}

// Takes the cycles.
template <int Cycles>
__device__ void spin() {
#ifndef GRAPHC_SIM
  const long long begin = clock64();
  while (clock64() - begin < Cycles);
#endif
}
extern "C" __global__ void spin_a(int*) { spin<8000>(); }
extern "C" __global__ void spin_b(int*) { spin<32000>(); }

// Waits of all blocks for each other.
template <int Count>
__device__ void waits(unsigned* word) {
#pragma unroll 1
  for (int i = 0; i < Count; i++) grid_barrier(word);
}
extern "C" __global__ void waits_a(unsigned* word) { waits<16>(word); }
extern "C" __global__ void waits_b(unsigned* word) { waits<64>(word); }
extern "C" __global__ void chase_a(void*** cursor) { chase<1024>(cursor); }
extern "C" __global__ void chase_b(void*** cursor) { chase<4096>(cursor); }
extern "C" __global__ void chase_shared_a(const int* next, int* end) {
  chase_shared<1024>(next, end);
}
extern "C" __global__ void chase_shared_b(const int* next, int* end) {
  chase_shared<4096>(next, end);
}
extern "C" __global__ void barriers_a(int*) { barriers<512>(); }
extern "C" __global__ void barriers_b(int*) { barriers<2048>(); }
extern "C" __global__ void shuffles_a(int* end) { shuffles<512>(end); }
extern "C" __global__ void shuffles_b(int* end) { shuffles<2048>(end); }
extern "C" __global__ void read_a(const float4* values, const int* count, float* end) {
  read<16>(values, count, end);
}
extern "C" __global__ void read_b(const float4* values, const int* count, float* end) {
  read<64>(values, count, end);
}
extern "C" __global__ void adds_a(const float* factors, float* end) { adds<64>(factors, end); }
extern "C" __global__ void adds_b(const float* factors, float* end) { adds<256>(factors, end); }
#if defined(GRAPHC_SIM) || __CUDA_ARCH__ >= 800
extern "C" __global__ void bfloats_a(const unsigned* words, float* end) {
  products<64, false>(words, end);
}
extern "C" __global__ void bfloats_b(const unsigned* words, float* end) {
  products<256, false>(words, end);
}
extern "C" __global__ void tf32_a(const unsigned* words, float* end) {
  products<64, true>(words, end);
}
extern "C" __global__ void tf32_b(const unsigned* words, float* end) {
  products<256, true>(words, end);
}
#endif

#if defined(GRAPHC_SIM) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Products of warp groups: 4 * Count of 64 x 128 x 16.
template <int Count>
__device__ void groups(float* end) {
  __shared__ __align__(1024) unsigned char tiles[8192 + 16384];
  for (int i = threadIdx.x; i < 6144; i += blockDim.x) reinterpret_cast<unsigned*>(tiles)[i] = 0;
  fence_async_proxy();
  __syncthreads();
  float sums[16][4] = {};
  group_fence();
#pragma unroll 1
  for (int i = 0; i < Count; i++) {
#pragma unroll
    for (int k = 0; k < 64; k += 16) group_multiply<1, true, true>(sums, tiles, tiles + 8192, k);
    group_commit();
  }
  group_wait<0>();
  float sum = 0;
  for (auto& each : sums) sum += each[0] + each[1] + each[2] + each[3];
  if (sum < 0) *end = sum;
}
extern "C" __global__ void groups_a(float* end) { groups<64>(end); }
extern "C" __global__ void groups_b(float* end) { groups<256>(end); }
#endif
