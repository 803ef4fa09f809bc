// smoke.cu: the least that graphc's kernels and their plans ask of a GPU, each as small as can be.
// What a lane of a warp holds of a tensor core's operands is stated by the functions below. On a GPU
// one instruction computes the product; in the simulator its twin computes from what the lanes hold.
using word = unsigned;

extern "C" __global__ void add(float* y, const float* x, float a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] += a * x[i];
}

// Of what the launch before wrote in other blocks: a launch that begins early has to wait for it.
extern "C" __global__ void follow(int* y, const int* x, const int* count) {
#if !defined(GRAPHC_SIM) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const int n = *count;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = x[(i + n / 2 + 1) % n] + 1;
}

// The sum of a block's 256 numbers, by shuffles and shared memory.
extern "C" __global__ void sum(const float* x, float* y) {
  __shared__ float part[8];
  float mine = x[threadIdx.x];
  for (int lanes = 16; lanes; lanes /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, lanes);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = mine;
  __syncthreads();
  float all = 0;
  for (int i = 0; i < 8; i++) all += part[i];
  if (threadIdx.x == 0) *y = all;
}

// Of c[16][8], c[i] of a lane.
__device__ inline int c_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
__device__ inline int c_column(int lane, int i) { return lane % 4 * 2 + i % 2; }

#ifdef GRAPHC_SIM
// c += a b, from all lanes' elements: A of them of a[16][K] and B of b[K][8] in each lane.
template <int K, int A, int B, class Rows, class Columns, class Depths, class Others>
__device__ inline void multiply(float (&c)[4], const float (&a)[A], const float (&b)[B],
                                const Rows& rows, const Columns& columns, const Depths& depths,
                                const Others& others) {
  __shared__ float whole_a[16][K], whole_b[K][8];
  const int lane = threadIdx.x;
  for (int i = 0; i < A; i++) whole_a[rows(lane, i)][columns(lane, i)] = a[i];
  for (int i = 0; i < B; i++) whole_b[depths(lane, i)][others(lane, i)] = b[i];
  __syncthreads();
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < K; k++) c[i] += whole_a[c_row(lane, i)][k] * whole_b[k][c_column(lane, i)];
  __syncthreads();
}
#endif

#if defined(GRAPHC_SIM) || __CUDA_ARCH__ >= 800
// c[16][8] = a[16][16] b[16][8] of bfloat16 (the upper half of a float32's bits), b by columns.
__device__ inline int half_row(int lane, int i) { return lane / 4 + i / 2 % 2 * 8; }
__device__ inline int half_column(int lane, int i) { return lane % 4 * 2 + i % 2 + i / 4 * 8; }
__device__ inline int half_depth(int lane, int i) { return lane % 4 * 2 + i % 2 + i / 2 * 8; }
__device__ inline int lane_column(int lane, int) { return lane / 4; }

extern "C" __global__ void mma_bf16(const unsigned short* a, const unsigned short* b, float* c) {
  const int lane = threadIdx.x;
  word x[8], y[4];
  for (int i = 0; i < 8; i++) x[i] = a[half_row(lane, i) * 16 + half_column(lane, i)];
  for (int i = 0; i < 4; i++) y[i] = b[half_depth(lane, i) * 8 + lane_column(lane, i)];
  float sums[4] = {};
#ifdef GRAPHC_SIM
  float fx[8], fy[4];
  for (int i = 0; i < 8; i++) fx[i] = __int_as_float(int(x[i] << 16));
  for (int i = 0; i < 4; i++) fy[i] = __int_as_float(int(y[i] << 16));
  multiply<16>(sums, fx, fy, half_row, half_column, half_depth, lane_column);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(x[0] | x[1] << 16), "r"(x[2] | x[3] << 16), "r"(x[4] | x[5] << 16),
        "r"(x[6] | x[7] << 16), "r"(y[0] | y[1] << 16), "r"(y[2] | y[3] << 16));
#endif
  for (int i = 0; i < 4; i++) c[c_row(lane, i) * 8 + c_column(lane, i)] = sums[i];
}

// c[16][8] = a[16][8] b[8][8] of tf32, which is float32 with 10 bits of fraction.
__device__ inline int wide_row(int lane, int i) { return lane / 4 + i % 2 * 8; }
__device__ inline int wide_column(int lane, int i) { return lane % 4 + i / 2 * 4; }
__device__ inline int wide_depth(int lane, int i) { return lane % 4 + i * 4; }

extern "C" __global__ void mma_tf32(const float* a, const float* b, float* c) {
  const int lane = threadIdx.x;
  float x[4], y[2], sums[4] = {};
  for (int i = 0; i < 4; i++) x[i] = a[wide_row(lane, i) * 8 + wide_column(lane, i)];
  for (int i = 0; i < 2; i++) y[i] = b[wide_depth(lane, i) * 8 + lane_column(lane, i)];
#ifdef GRAPHC_SIM
  multiply<8>(sums, x, y, wide_row, wide_column, wide_depth, lane_column);
#else
  word xs[4], ys[2];
  for (int i = 0; i < 4; i++) xs[i] = __float_as_uint(x[i]);
  for (int i = 0; i < 2; i++) ys[i] = __float_as_uint(y[i]);
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(xs[0]), "r"(xs[1]), "r"(xs[2]), "r"(xs[3]), "r"(ys[0]), "r"(ys[1]));
#endif
  for (int i = 0; i < 4; i++) c[c_row(lane, i) * 8 + c_column(lane, i)] = sums[i];
}

#endif

// y[lane][j]: the two elements that ldmatrix.x4 gives a lane of the j-th of four 8 x 8 matrices of
// two bytes, x[j][8][8]; lane l names row l % 8 of matrix l / 8.
extern "C" __global__ void load_matrices(const unsigned short* x, word* y) {
  __shared__ __align__(16) unsigned short tile[4][8][8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) tile[i / 64][i / 8 % 8][i % 8] = x[i];
  __syncthreads();
  word got[4];
#ifdef GRAPHC_SIM
  for (int j = 0; j < 4; j++)
    got[j] = tile[j][lane / 4][lane % 4 * 2] | word(tile[j][lane / 4][lane % 4 * 2 + 1]) << 16;
#else
  const word row = static_cast<word>(__cvta_generic_to_shared(tile[lane / 8][lane % 8]));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(got[0]), "=r"(got[1]), "=r"(got[2]), "=r"(got[3])
               : "r"(row));
#endif
  for (int j = 0; j < 4; j++) y[lane * 4 + j] = got[j];
}
