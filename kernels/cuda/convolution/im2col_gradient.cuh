// im2col_gradient.cuh: the gradient of a convolution's filters by tensor cores, for images of few
// channels: taps and channels of x together are rows of the products, so that 25 taps of one channel
// fill 32 rows, and those of 20 channels 512. halo_gradient.cuh has rows of dy's channels, and columns
// of eight channels of x for each tap.
//
// As there, rows of the sums are channels of dy, columns the taps and channels of x, k the output
// pixels, cut in `splits`. Here Rows of those columns and all channels of dy are a block's. A step is
// Lines lines of output, whose lines of both images have two buffers. Lines that do not exist are zeros.
//
// A product is of 16 taps and channels of x, 8 channels of dy and 8 pixels: neighbours, or four of each
// of two lines where a line has an odd number of four. A warp has Rows / Down rows, and with other
// warps a share of the lines; what the shares of a sum are is added in order at the end. dy is rounded
// where it lies if several warps read it.
#pragma once
#include "cuda/convolution/staging.cuh"

namespace graphc {

template <int Rows_, int Lines_, int Down_>
struct Im2colTile {
  static constexpr int Rows = Rows_, Lines = Lines_, down = Down_;
  static constexpr int warps = 8, threads = 32 * warps;
};

template <class Problem, class Halo, class Tile>
struct Im2colGradient {
  static constexpr int M = Problem::M, N = Problem::N, C = Halo::columns, S = Halo::S;
  static constexpr int Lines = Tile::Lines, threads = Tile::threads, down = Tile::down;
  static constexpr int shares = Tile::warps / down, fragments = Tile::Rows / (16 * down);
  static constexpr int across = ceil_div(M, 8);
  static constexpr int bands = Halo::P / Lines, steps = Halo::images * bands;
  static_assert(fragments * 16 * down == Tile::Rows && shares * down == Tile::warps, "whole warps");
  static_assert(bands * Lines == Halo::P && Halo::channels == C, "whole steps and pixels");
  static_assert((C == 1 && Halo::W % 4 == 0) || C % 4 == 0, "x is copied 16 bytes at a time");
  static_assert(Halo::pixel == C, "dense lines of x");
  static_assert(Halo::y_line == Halo::Q * Halo::y_pixel, "dense lines of dy");

  static constexpr bool pairs = Halo::Q % 8 != 0;
  static constexpr int together = pairs ? 2 : 1;  // lines
  static constexpr int products = Halo::Q * together / 8, units = Lines / together;
  static_assert(products * 8 == Halo::Q * together && units * together == Lines, "whole products");

  // In floats.
  static constexpr int pixel = C == 1 || C % 8 ? C : C + 4;
  using Line = StagedLine<Halo, pixel, 4>;
  static constexpr int line = Line::line, beside = Line::beside, reach = Line::reach(Lines);
  static constexpr int y_chunks = ceil_div(Halo::outputs, 4);
  static constexpr int y_pixel = y_chunks % 2 ? y_chunks * 4 : y_chunks * 4 + 4;
  static constexpr int y_first = reach * line, buffer = y_first + Lines * Halo::Q * y_pixel;
  // Sums as they leave: 16 rows of each of a warp's columns.
  static constexpr int pitch = 20, stage = across * 8 * pitch;
  static constexpr int all = 2 * buffer, staged = Tile::warps * stage;
  static constexpr int bytes = (all > staged ? all : staged) * 4;
  static constexpr bool rounds_y = down > 1;

  // Calls visitor(place in a buffer, in x, whether it exists) for each 16 bytes of x that this thread
  // copies for a step, or visitor(place in a buffer, in dy, how many channels there are from there on).
  template <class Visitor>
  GRAPHC_INLINE static void each_x(int step, const Visitor& visitor) {
    constexpr int per_line = Halo::W * C / 4, count = reach * per_line;
    const int image = step / bands, top = step % bands * Lines * Halo::down + Halo::top;
    const int from = image * Halo::image + top * Halo::line;
#pragma unroll 2
    for (unsigned i = threadIdx.x; i < count; i += threads) {
      const int y = i / per_line, chunk = i % per_line;
      const int x =
          C == 1 ? chunk * 4 : chunk / ceil_div(C, 4) * pixel + chunk % ceil_div(C, 4) * 4;
      const bool exists = top + y >= 0 && top + y < Halo::H;
      visitor(y * line + beside + x, from + static_cast<int>(i) * 4, exists);
    }
  }
  template <class Visitor>
  GRAPHC_INLINE static void each_y(int step, const Visitor& visitor) {
    constexpr int count = Lines * Halo::Q * y_chunks;
    const int from = step / bands * Halo::y_image + step % bands * Lines * Halo::y_line;
#pragma unroll 2
    for (unsigned i = threadIdx.x; i < count; i += threads) {
      const int at = i / y_chunks, o = i % y_chunks * 4;
      visitor(y_first + at * y_pixel + o, from + at * Halo::y_pixel + o, Halo::outputs - o);
    }
  }
  GRAPHC_INLINE static void copy(float* to, int step, const tf32* dy, const tf32* x) {
    each_x(step, [&](int at, int from, bool exists) {
      copy_async<16>(to + at, x + static_cast<unsigned>(from), exists ? 16 : 0);
    });
    each_y(step, [&](int at, int from, int left) {
      copy_async<16>(to + at, dy + static_cast<unsigned>(from), smaller(4, left) * 4);
    });
  }
  GRAPHC_INLINE static void round(float* buffer, int step) {
    auto nearest = [&](int at) {  // as round_four, which takes other registers here
      auto& four = *reinterpret_cast<Run<float, 4>*>(buffer + at);
      Run<float, 4> near;
#pragma unroll
      for (int i = 0; i < 4; i++) near.at[i] = float_to_tf32(four.at[i]);
      four = near;
    };
    each_x(step, [&](int at, int, bool) { nearest(at); });
    if constexpr (rounds_y) each_y(step, [&](int at, int, int) { nearest(at); });
  }
  // Where the tap and channel of row m lies from that of row 0; rows behind the last are as that one.
  GRAPHC_INLINE static int place_of(int m) {
    const int tap = m < N ? m / C : 0, c = m < N ? m % C : 0;
    return tap / S * (Halo::tap_down * line) + tap % S * (Halo::tap_across * pixel) + c;
  }

  using Sums = float[fragments][across][4];

  // Adds the products of eight pixels: of `x` and `y` with the rows' and columns' places in this thread.
  GRAPHC_INLINE static void add(Sums& sum, const float* x, const float* y, int beyond,
                                const int (&rows)[fragments][2]) {
    constexpr int x_next = pairs ? Halo::down * line : Halo::across * pixel;
    constexpr int y_next = pairs ? Halo::Q * y_pixel : y_pixel;
    unsigned b[across][2];
#pragma unroll
    for (int n = 0; n < across; n++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float value = y[h * y_next + n * 8 + (n + 1 == across ? beyond : 0)];
        b[n][h] = __float_as_uint(rounds_y ? value : float_to_tf32(value));
      }
#pragma unroll
    for (int f = 0; f < fragments; f++) {
      unsigned a[4];
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < 2; i++) a[h * 2 + i] = __float_as_uint(x[rows[f][i] + h * x_next]);
#pragma unroll
      for (int n = 0; n < across; n++) multiply_tf32(sum[f][n], a, b[n]);
    }
  }

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void run_in(const Block& block, unsigned char* memory, const tf32* dy,
                                   const tf32* x, const Epilogue& epilogue) {
    float* const shared = reinterpret_cast<float*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int share = warp / down, row0 = block.x() * Tile::Rows + warp % down * fragments * 16;
    const PartOfSteps<steps, Problem::splits> part(block.y());
    Line::template clear<threads, reach, 2>(shared, buffer);
    auto load = [&](int i) { copy(shared + i % 2 * buffer, i, dy, x); };
    load_step(part, part.begin, load);
    int rows[fragments][2];
#pragma unroll
    for (int f = 0; f < fragments; f++)
#pragma unroll
      for (int i = 0; i < 2; i++) rows[f][i] = place_of(row0 + f * 16 + i * 8 + lane / 4);
    const int first = lane % 4 * (pairs ? 1 : 2), column = lane / 4;
    // Columns behind the last of dy read its first: their sums are not used.
    const int beyond = (across - 1) * 8 + column < y_pixel ? 0 : -(across - 1) * 8 - column;
    const int x_lane = beside + Halo::left * pixel + first * Halo::across * pixel;
    const int y_lane = y_first + first * y_pixel + column;
    Sums sum = {};
    auto multiply = [&](int i) {
      const float* const from = shared + i % 2 * buffer;
#pragma unroll(products == 1 ? 2 : 1)
      for (int unit = share; unit < units; unit += shares) {
        const float* const x_unit = from + x_lane + unit * (together * Halo::down * line);
        const float* const y_unit = from + y_lane + unit * (together * Halo::Q * y_pixel);
#pragma unroll
        for (int j = 0; j < products; j++) {
          constexpr int pixels = 8 / together;
          add(sum, x_unit + j * (pixels * Halo::across * pixel), y_unit + j * (pixels * y_pixel),
              beyond, rows);
        }
      }
    };
    auto nearest = [&](int i) { round(shared + i % 2 * buffer, i); };
    each_step(block, part, load, nearest, multiply);
    finish(block, shared, sum, epilogue);
  }

  // Sums leave by shared memory, those of a fragment of each warp at a time, where the shares are added.
  template <class Block, class Epilogue>
  GRAPHC_INLINE static void finish(const Block& block, float* shared, const Sums& sum,
                                   const Epilogue& epilogue) {
    constexpr int run = Epilogue::run, runs = 16 / run, count = down * across * 8 * runs;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* const own = shared + warp * stage + lane % 4 * 2 * pitch + lane / 4;
    copy_wait<0>();
#pragma unroll
    for (int f = 0; f < fragments; f++) {
      block.sync();
#pragma unroll
      for (int n = 0; n < across; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) own[(n * 8 + i % 2) * pitch + i / 2 * 8] = sum[f][n][i];
      block.sync();
#pragma unroll 2
      for (unsigned i = threadIdx.x; i < count; i += threads) {
        const int j = i % runs * run, o = i / runs % (across * 8), d = i / runs / (across * 8);
        const int n = block.x() * Tile::Rows + (d * fragments + f) * 16 + j;
        if (o >= M || n >= N) continue;
        auto& total = *reinterpret_cast<Run<float, run>*>(shared + d * stage + o * pitch + j);
#pragma unroll
        for (int s = 1; s < shares; s++) {
          const float* const part = total.at + s * down * stage;
#pragma unroll
          for (int e = 0; e < run; e++) total.at[e] += part[e];
        }
        apply_run<N>(epilogue, 0, o, n, total.at);
      }
    }
  }
};

}  // namespace graphc
