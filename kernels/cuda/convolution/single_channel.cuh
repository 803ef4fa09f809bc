// single_channel.cuh: a convolution of images of one channel by tensor cores. Taps are the k of the
// products, so that 25 of them fill 28; halo.cuh has whole eights of channels for each tap. The filters
// lie beside the lines; those of its taps a thread then keeps in registers.
//
// Rows are output pixels as they lie, and filters are dense. A block computes Lines lines of output, of
// all columns. Each warp takes 32 rows at a time, which leave by shared memory of its own, so that
// neighbouring threads store neighbours.
#pragma once
#include "cuda/convolution/staging.cuh"

namespace graphc {

template <int Lines_, int Warps_>
struct SingleChannelTile {
  static constexpr int Lines = Lines_, warps = Warps_, threads = 32 * Warps_;
};

template <class Problem, class Halo, class Tile>
struct SingleChannelProduct {
  static constexpr int N = Problem::N, S = Halo::S, taps = Halo::R * S;
  static constexpr int Lines = Tile::Lines, threads = Tile::threads;
  static constexpr int bands = Halo::P / Lines, rows = Lines * Halo::Q;
  static constexpr int across = ceil_div(N, 8), quads = ceil_div(taps, 4);
  static constexpr int turn = 32, turns = ceil_div(rows, turn);  // rows of a warp at once
  static_assert(Problem::K == taps && bands * Lines == Halo::P, "all taps, whole blocks");

  static constexpr int vector = Halo::W % 4 || Halo::image % 4 ? 1 : 4;
  // In floats.
  using Line = StagedLine<Halo, 1, vector>;
  static constexpr int line = Line::line, beside = Line::beside, reach = Line::reach(Lines);
  static constexpr int pitch = across * 8 + (across % 2 ? 16 : 8);  // four rows in different banks
  static constexpr int stage = turn * pitch, pixels = reach * line;
  static constexpr int filters = ceil_div(N * taps, 4) * 4;
  static constexpr int bytes = (pixels + filters + Tile::warps * stage) * 4;

  // Copies lines from `top` on, those that do not exist as zeros, and zeros beside them.
  GRAPHC_INLINE static void copy(float* to, const float* image, int top) {
    constexpr int per_line = Halo::W / vector, count = reach * per_line;
    Line::template clear<threads, reach>(to);
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < count; i += threads) {
      const int y = i / per_line, x = i % per_line * vector;
      Run<float, vector> run = {};
      if (top + y >= 0 && top + y < Halo::H)
        run = *reinterpret_cast<const Run<float, vector>*>(image + (top + y) * Halo::W + x);
      round_run(run);
      *reinterpret_cast<Run<float, vector>*>(to + y * line + beside + x) = run;
    }
  }
  GRAPHC_INLINE static void copy_filters(float* to, const float* from) {
    constexpr int count = N * taps, together = count % 4 ? 1 : 4;
#pragma unroll 4
    for (unsigned i = threadIdx.x * together; i < count; i += threads * together) {
      auto some = *reinterpret_cast<const Run<float, together>*>(from + i);
      round_run(some);
      *reinterpret_cast<Run<float, together>*>(to + i) = some;
    }
  }

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void run_in(const Block& block, unsigned char* memory, const tf32* a,
                                   const tf32* b, const Epilogue& epilogue) {
    float* const shared = reinterpret_cast<float*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int number = block.x() / bands, band = block.x() % bands;
    copy(shared, reinterpret_cast<const float*>(a) + number * Halo::image,
         band * Lines * Halo::down + Halo::top);
    copy_filters(shared + pixels, reinterpret_cast<const float*>(b));
    block.sync();
    // Of each four taps this thread's: where it lies, and its filters.
    int places[quads];
    unsigned filter[across][quads];
#pragma unroll
    for (int i = 0; i < quads; i++) {
      const int tap = i * 4 + lane % 4, there = tap < taps ? tap : 0;
      places[i] = there / S * (Halo::tap_down * line) + there % S * Halo::tap_across;
#pragma unroll
      for (int n = 0; n < across; n++) {
        const int column = n * 8 + lane / 4, exists = tap < taps && column < N;
        filter[n][i] = __float_as_uint(exists ? shared[pixels + column * taps + tap] : 0.0f);
      }
    }
    const bool whole = taps % 4 == 0 || lane % 4 < taps % 4;  // whether the last tap exists
    float* const own = shared + pixels + filters + warp * stage;
#pragma unroll 1
    for (int i = warp; i < turns; i += Tile::warps) {
      const float* from[2][2];
#pragma unroll
      for (int h = 0; h < 4; h++) {
        const int row = smaller(i * turn + h * 8 + lane / 4, rows - 1);
        from[h / 2][h % 2] = shared + beside + Halo::left + row / Halo::Q * (Halo::down * line) +
                             row % Halo::Q * Halo::across;
      }
      float sum[2][across][4] = {};
#pragma unroll
      for (int j = 0; j < quads; j += 2) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          unsigned pixel[4];
#pragma unroll
          for (int q = 0; q < 4 && j + q / 2 < quads; q++) {
            const float value = from[h][q % 2][places[j + q / 2]];
            pixel[q] = __float_as_uint(j + q / 2 + 1 < quads || whole ? value : 0.0f);
          }
#pragma unroll
          for (int n = 0; n < across; n++) {
            if (j + 1 < quads) multiply_tf32(sum[h][n], pixel, {filter[n][j], filter[n][j + 1]});
            else multiply_tf32(sum[h][n], {pixel[0], pixel[1]}, filter[n][j]);
          }
        }
      }
      __syncwarp();
#pragma unroll
      for (int h = 0; h < 4; h++)
#pragma unroll
        for (int n = 0; n < across; n++)
          *reinterpret_cast<Run<float, 2>*>(own + (h * 8 + lane / 4) * pitch + n * 8 +
                                            lane % 4 * 2) = {
              {sum[h / 2][n][h % 2 * 2], sum[h / 2][n][h % 2 * 2 + 1]}};
      __syncwarp();
      constexpr int run = Epilogue::run, runs = ceil_div(N, run);
      const int first = (number * Halo::P + band * Lines) * Halo::Q + i * turn;
#pragma unroll(runs <= 8 ? runs : 4)
      for (int j = lane; j < turn * runs; j += 32) {
        const int row = j / runs, n = j % runs * run;
        if (rows % turn == 0 || i * turn + row < rows)
          apply_run<N>(epilogue, 0, first + row, n, own + row * pitch + n);
      }
    }
  }
};

}  // namespace graphc
