// staging.cuh: what convolutions by tensor cores share whose blocks stage the pixels that their sums
// read in shared memory: lines of images with their halo, copied there and rounded to tf32 once for all
// taps, which contract.cuh copies for each tap again.
//
// Problem, B and Epilogue are those of contract.cuh. Of the images that are read at taps there is
//   Halo     images, P, Q   of the output, or of dy; H, W of the images
//             R, S           taps; tap (r, s) of output pixel (p, q) is the pixel
//                            (p * down + r * tap_down + top, q * across + s * tap_across + left)
//             channels       that exist; image, line, pixel: elements from one to the next in memory,
//                            where nothing lies between lines, nor between images
// and of a gradient's second images, which are read as they lie,
//             outputs, y_image, y_line, y_pixel    the same of dy
//             columns        channels of x that there are columns for
//
// All such templates take their shared memory, `bytes` of it, dynamic and aligned to 16. Pitches there
// are such that what a warp reads at once lies in different banks.
#pragma once
#include "cuda/contract/tiles/tensor.cuh"

namespace graphc {

// Rounds floats to the nearest that tensor cores take, in registers or where they lie.
template <int N>
GRAPHC_INLINE void round_run(Run<float, N>& run) {
#pragma unroll
  for (int i = 0; i < N; i++) run.at[i] = float_to_tf32(run.at[i]);
}
GRAPHC_INLINE void round_four(float* at) {
  auto& four = *reinterpret_cast<Run<float, 4>*>(at);
  Run<float, 4> near;  // which is stored at once
#pragma unroll
  for (int i = 0; i < 4; i++) near.at[i] = float_to_tf32(four.at[i]);
  four = near;
}

// A line of pixels of Pixel floats, with zeros on both sides as far as taps reach; copies to it are of
// Vector floats. Of single floats taps of two lines are read at once: those lie 12 to 20 banks apart.
template <class Halo, int Pixel, int Vector>
struct StagedLine {
  static_assert(Halo::line == Halo::W * Halo::pixel, "dense lines");
  static constexpr int outside = Halo::left < 0 ? -Halo::left * Pixel : 0;
  static constexpr int beside = ceil_div(outside, Vector) * Vector, width = Halo::W * Pixel;
  static constexpr int last =
      (Halo::Q - 1) * Halo::across + (Halo::S - 1) * Halo::tap_across + Halo::left;
  __host__ __device__ static constexpr int spread(int floats) {
    while (Pixel == 1 && (floats % 4 || floats % 32 < 12 || floats % 32 > 20)) floats++;
    return floats;
  }
  static constexpr int line = spread(beside + (last < Halo::W ? Halo::W : last + 1) * Pixel);

  // Lines that so many neighbouring lines of output read.
  __host__ __device__ static constexpr int reach(int lines) {
    return (lines - 1) * Halo::down + (Halo::R - 1) * Halo::tap_down + 1;
  }
  // Zeros beside the pixels of Lines lines of each of Buffers, which are `buffer` floats apart.
  template <int Threads, int Lines, int Buffers = 1>
  GRAPHC_INLINE static void clear(float* to, int buffer = 0) {
    constexpr int gap = line - width;
    if constexpr (gap > 0)
      for (unsigned i = threadIdx.x; i < Buffers * Lines * gap; i += Threads) {
        const int y = i / gap, x = i % gap;
        const int at = Buffers > 1 ? y / Lines * buffer + y % Lines * line : y * line;
        to[at + (x < beside ? x : x + width)] = 0;
      }
  }
};

// Part `part` of so many steps: the first steps % splits have one more.
template <int steps, int splits>
struct PartOfSteps {
  static constexpr int least = steps / splits, more = steps % splits;
  int begin, end;
  GRAPHC_INLINE explicit PartOfSteps(int part)
      : begin(part * least + smaller(part, more)), end(begin + least + (part < more)) {}
};

// Calls copy(i), round(i) and multiply(i) for the steps of a part of k: the copies of the next step are
// under way during a step, which has one barrier. load_step has begun the first.
template <class Part, class Copy>
GRAPHC_INLINE void load_step(const Part& part, int i, const Copy& copy) {
  if (i < part.end) copy(i);
  copy_commit();
}
template <class Block, class Part, class Copy, class Round, class Multiply>
GRAPHC_INLINE void each_step(const Block& block, const Part& part, const Copy& copy,
                             const Round& round, const Multiply& multiply) {
  for (int i = part.begin; i < part.end; i++) {
    copy_wait<0>();
    round(i);
    block.sync();  // step i has arrived for all, and all have left the step before
    load_step(part, i + 1, copy);
    multiply(i);
  }
}

}  // namespace graphc
