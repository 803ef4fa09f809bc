// halo_gradient.cuh: the gradient of a convolution's filters by tensor cores, where a block keeps the
// sums of all taps of its channels.
//
// Rows are channels of dy, columns the taps and channels of x, k the output pixels, cut in `splits`. A
// step is Lines lines of output. Lines of x lie in a ring of Slots, where those that the next step reads
// as well stay; dy has two buffers. A line that does not exist is left out with its taps. Between lines
// of x lie zeros, as many pixels as any tap is beside the image.
//
// A product is of 16 channels of dy, 8 of x and 8 pixels: two groups of 4 neighbours. Where a line
// has an odd number of groups, two lines are taken together, else pixels behind the last of dy are
// zeros. A warp has 8 channels of x, all taps, and BO / Down channels of dy. Images of four
// channels have so few that 8 columns are two taps: a warp has those of all lines of the filter.
#pragma once
#include "cuda/convolution/staging.cuh"

namespace graphc {

template <int BO_, int BC_, int Lines_, int Slots_>
struct HaloGradientTile {
  static constexpr int BO = BO_, BC = BC_, Lines = Lines_, Slots = Slots_;
  static constexpr int warps = 8, threads = 32 * warps;
};

template <class Problem, class Halo, class Tile>
struct HaloGradient {
  static constexpr int BO = Tile::BO, BC = Tile::BC, Lines = Tile::Lines, threads = Tile::threads;
  static constexpr int M = Problem::M, N = Problem::N, R = Halo::R, S = Halo::S;
  static constexpr int tiles_c = ceil_div(Halo::columns, BC);
  static constexpr int bands = ceil_div(Halo::P, Lines), steps = Halo::images * bands;

  // Columns of a warp: `held` times eight, of a line of the filter, or of a tap.
  static constexpr bool narrow = BC == 4;
  static constexpr int line_columns = narrow ? S * BC : BC;
  static constexpr int across = narrow ? (S > 8 ? 8 : S > 4 ? 4 : S > 2 ? 2 : 1) : BC / 8;
  static constexpr int down = Tile::warps / across, held = narrow ? R : R * S;
  static constexpr int fragments = BO / (16 * down);
  static_assert(fragments * 16 * down == BO && down * across == Tile::warps, "whole warps");
  static_assert(!narrow || (Halo::tap_across == 1 && across * 8 >= line_columns), "lie together");

  static constexpr int groups = ceil_div(Halo::Q, 4);
  static constexpr bool pairs = groups % 2 && Halo::P % 2 == 0 && Halo::Q % 4 == 0;
  static constexpr int together = pairs ? 2 : 1;  // lines
  static constexpr int products = pairs ? groups : ceil_div(groups, 2);
  static constexpr int filled = pairs ? Halo::Q : products * 8;
  static_assert(Lines % together == 0, "whole pairs");

  // In floats.
  static constexpr int pixel = narrow ? BC : BC + (Halo::across % 2 ? 8 : 4), y_pixel = BO + 8;
  static constexpr int beside = Halo::left < 0 ? -Halo::left * pixel : 0;
  static constexpr int read = ((filled - 1) * Halo::across + Halo::left) * pixel +
                              (narrow ? across * 8 : ((S - 1) * Halo::tap_across + 1) * pixel);
  static constexpr int width = Halo::W * pixel;
  static constexpr int line = width + beside > read ? width + beside : read;
  static constexpr int none = beside + Tile::Slots * line;  // a line of zeros, if lines are pairs
  static constexpr int y_line = filled * y_pixel, y_first = none + (pairs ? line + beside : 0);
  static constexpr int y_bytes = Lines * y_line;
  // Sums as they leave: of 16 rows of each warp, for each of the `held`.
  static constexpr int pitch = across * 8 + 8, out_rows = 16 * down;
  static constexpr int stage = out_rows * pitch + 4;
  static constexpr int all = y_first + 2 * y_bytes;
  static constexpr int bytes = (all > stage ? all : stage) * 4;
  static constexpr int at_once = smaller(bytes / 4 / stage, held);

  // The step's image and its first line of output.
  struct Step {
    int image, p;
    GRAPHC_INLINE explicit Step(unsigned i) : image(i / bands), p(i % bands * Lines) {}
    GRAPHC_INLINE int lines() const { return smaller(Lines, Halo::P - p); }
    // The first line of x that it reads and the one behind the last.
    GRAPHC_INLINE int first() const {
      const int y = p * Halo::down + Halo::top;
      return y < 0 ? 0 : y;
    }
    GRAPHC_INLINE int end() const {
      const int last = (p + lines() - 1) * Halo::down + (R - 1) * Halo::tap_down + Halo::top;
      return smaller(last + 1, Halo::H);
    }
  };
  GRAPHC_INLINE static int slot_of(int image, int y) {
    // `y` may be that of a line above the image.
    constexpr int above = Halo::top < 0 ? ceil_div(-Halo::top, Tile::Slots) * Tile::Slots : 0;
    return static_cast<int>(static_cast<unsigned>(image * Halo::H + y + above) % Tile::Slots);
  }

  // Calls visitor(place in shared memory, in x or in dy, whether it is dy) for each 16 bytes that this
  // thread copies for a step: of x lines from `first` on. It stays in its channels.
  template <class Visitor>
  GRAPHC_INLINE static void each_chunk(const Step& step, int first, int buffer,
                                       const Visitor& visitor) {
    constexpr int chunks = BC / 4, y_chunks = BO / 4;
    static_assert(threads % chunks == 0 && threads % y_chunks == 0, "a thread stays");
    const int slot = slot_of(step.image, first);
    const unsigned lines = step.end() > first ? step.end() - first : 0, count = lines * Halo::W;
    const int c = threadIdx.x % chunks * 4, o = threadIdx.x % y_chunks * 4;
    const int from = step.image * Halo::image + first * Halo::line + c;
#pragma unroll 2
    for (unsigned i = threadIdx.x / chunks; i < count; i += threads / chunks) {
      const int y = i / Halo::W, x = i % Halo::W;
      const int at = slot + y < Tile::Slots ? slot + y : slot + y - Tile::Slots;
      visitor(beside + at * line + x * pixel + c, from + i * Halo::pixel, false);
    }
    const int y_from = step.image * Halo::y_image + step.p * Halo::y_line + o;
    const int y_to = y_first + buffer * y_bytes + o;
    const unsigned y_count = step.lines() * Halo::Q;
#pragma unroll 2
    for (unsigned i = threadIdx.x / y_chunks; i < y_count; i += threads / y_chunks) {
      const int gaps = filled > Halo::Q ? i / Halo::Q * (filled - Halo::Q) : 0;
      visitor(y_to + (i + gaps) * y_pixel, y_from + i * Halo::y_pixel, true);
    }
  }
  static_assert(Halo::line == Halo::W * Halo::pixel, "lines of x lie together");
  static_assert(Halo::y_line == Halo::Q * Halo::y_pixel, "lines of dy lie together");

  // Bytes that exist of this thread's 16 of a pixel, from channel `first` of a block on.
  template <int Channels, int Width>
  GRAPHC_INLINE static int live_bytes(int first) {
    if constexpr (Channels % Width == 0) return 16;
    const int left = Channels - first - static_cast<int>(threadIdx.x % (Width / 4)) * 4;
    return left > 4 ? 16 : left > 0 ? left * 4 : 0;
  }
  GRAPHC_INLINE static void copy(float* shared, const Step& step, int first, int buffer,
                                 const tf32* dy, const tf32* x, int o0, int c0) {
    const int live_x = live_bytes<Halo::channels, BC>(c0);
    const int live_y = live_bytes<Halo::outputs, BO>(o0);
    each_chunk(step, first, buffer, [&](int to, int from, bool of_y) {
      const tf32* const base = of_y ? dy + o0 : x + c0;
      copy_async<16>(shared + to, base + static_cast<unsigned>(from), of_y ? live_y : live_x);
    });
  }
  GRAPHC_INLINE static void round(float* shared, const Step& step, int first, int buffer) {
    each_chunk(step, first, buffer, [&](int at, int, bool) { round_four(shared + at); });
  }
  // Zeros for `count` times `Size` floats, Pitch apart.
  template <int Size, int Pitch>
  GRAPHC_INLINE static void zero(float* from, unsigned count) {
    if constexpr (Size > 0)
      for (unsigned i = threadIdx.x; i < count * Size; i += threads)
        from[i / Size * Pitch + i % Size] = 0;
  }
  // Where no copy goes, and products read.
  GRAPHC_INLINE static void clear(float* shared) {
    zero<beside, 0>(shared, 1);
    zero<line - width, line>(shared + beside + width, Tile::Slots);
    zero<y_first - none, 0>(shared + none, 1);
    zero<y_line - Halo::Q * y_pixel, y_line>(shared + y_first + Halo::Q * y_pixel, 2 * Lines);
  }

  // Whether a step is an image, whose lines' loop is unrolled.
  static constexpr bool whole = Lines == Halo::P && Lines <= 8 && Tile::Slots == 2 * Halo::H;

  using Sums = float[held][fragments][4];

  // Adds the products of a line of output, or of a pair: `y` is this thread's first channel there, `x`
  // its column of the ring, whose slot `slot` has the line that the first tap reads, if there is one.
  GRAPHC_INLINE static void add(Sums& sum, const float* y, const float* x, const float* none,
                                int slot, int p) {
    const float* row[together][R];
    unsigned live = 0;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int h = 0; h < together; h++) {
        const int further = h * Halo::down + r * Halo::tap_down;
        const int at = p * Halo::down + further + Halo::top, wanted = slot + further;
        const bool exists = at >= 0 && at < Halo::H;
        row[h][r] =
            exists ? x + (wanted < Tile::Slots ? wanted : wanted - Tile::Slots) * line : none;
        live |= static_cast<unsigned>(exists) << r;
      }
    if (live == (1u << R) - 1) add_rows<true>(sum, y, row, live);
    else add_rows<false>(sum, y, row, live);
  }
  // The same where `all` rows of taps exist, or those whose bits are `live`.
  template <bool All>
  GRAPHC_INLINE static void add_rows(Sums& sum, const float* y, const float* (&row)[together][R],
                                     unsigned live) {
#pragma unroll(pairs || products <= 4 ? products : 1)
    for (int j = 0; j < products; j++) {
      int q[2], h[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int group = j * 2 + i;
        h[i] = pairs ? group / groups : 0, q[i] = (pairs ? group % groups : group) * 4;
      }
      unsigned a[fragments][4];
#pragma unroll
      for (int m = 0; m < fragments; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const auto two =
              *reinterpret_cast<const Run<float, 2>*>(y + h[i] * y_line + q[i] * y_pixel + m * 16);
          a[m][i * 2] = __float_as_uint(two.at[0]);
          a[m][i * 2 + 1] = __float_as_uint(two.at[1]);
        }
#pragma unroll
      for (int r = 0; r < R; r++) {
        if (!All && !(live >> r & 1)) continue;
#pragma unroll
        for (int s = 0; s < held / R; s++) {
          unsigned b[2];
#pragma unroll
          for (int i = 0; i < 2; i++)
            b[i] =
                __float_as_uint(row[h[i]][r][(q[i] * Halo::across + s * Halo::tap_across) * pixel]);
#pragma unroll
          for (int m = 0; m < fragments; m++) multiply_tf32(sum[r * (held / R) + s][m], a[m], b);
        }
      }
    }
  }

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void run_in(const Block& block, unsigned char* memory, const tf32* dy,
                                   const tf32* x, const Epilogue& epilogue) {
    float* const shared = reinterpret_cast<float*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int c0 = block.x() % tiles_c * BC, o0 = block.x() / tiles_c * BO;
    const PartOfSteps<steps, Problem::splits> part(block.y());
    clear(shared);
    auto first_of = [&](int i) {  // the first line of x that step i does not find in the ring
      const Step step(i);
      if (i == part.begin || step.p == 0) return step.first();
      const int there = Step(i - 1).end();
      return there > step.first() ? there : step.first();
    };
    Sums sum = {};
    const int column = warp % across * 8 + lane / 4, row = warp / across * fragments * 16;
    const int place = lane % 4 * Halo::across * pixel + column;
    auto multiply = [&](int i) {
      const Step step(i);
      const float* const y =
          shared + y_first + i % 2 * y_bytes + lane % 4 * y_pixel + row + lane / 4 * 2;
      const float* const from = shared + beside + Halo::left * pixel + place;
      if constexpr (whole) {  // each step has an image of its own: where its lines lie is known
        const float* const image = from + step.image % 2 * Halo::H * line;
#pragma unroll
        for (int p = 0; p < Halo::P; p += together)
          add(sum, y + p * y_line, image, shared + none + place, p * Halo::down + Halo::top, p);
      } else {
        int slot = slot_of(step.image, step.p * Halo::down + Halo::top);
        for (int p = 0; p < step.lines(); p += together) {
          add(sum, y + p * y_line, from, shared + none + place, slot, step.p + p);
          slot += together * Halo::down;
          if (slot >= Tile::Slots) slot -= Tile::Slots;
        }
      }
    };
    auto load = [&](int i) { copy(shared, Step(i), first_of(i), i % 2, dy, x, o0, c0); };
    auto nearest = [&](int i) { round(shared, Step(i), first_of(i), i % 2); };
    load_step(part, part.begin, load);
    each_step(block, part, load, nearest, multiply);
    finish(block, shared, sum, o0, c0, epilogue);
  }

  // Sums leave by shared memory, those of a fragment of each warp at a time, and so that neighbouring
  // threads store neighbours: channels of x, or taps where no run of channels lies together.
  template <class Block, class Epilogue>
  GRAPHC_INLINE static void finish(const Block& block, float* shared, const Sums& sum, int o0,
                                   int c0, const Epilogue& epilogue) {
    constexpr int run = Epilogue::run, runs = across * 8 / run;
    constexpr bool taps_first = run == 1 && !narrow;
    static_assert(N % run == 0 && line_columns % run == 0, "a run exists or does not");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* const own =
        shared + (warp / across * 16 + lane / 4 * 2) * pitch + warp % across * 8 + lane % 4 * 2;
#pragma unroll
    for (int first = 0; first < held; first += at_once) {
      const int count = smaller(at_once, held - first);
#pragma unroll
      for (int m = 0; m < fragments; m++) {
        block.sync();
#pragma unroll
        for (int h = 0; h < count; h++)
#pragma unroll
          for (int i = 0; i < 4; i += 2)
            *reinterpret_cast<Run<float, 2>*>(own + h * stage + i / 2 * pitch) = {
                {sum[first + h][m][i], sum[first + h][m][i + 1]}};
        block.sync();
#pragma unroll 2
        for (unsigned i = threadIdx.x; i < count * out_rows * runs; i += threads) {
          const int h = taps_first ? i % count : i / (out_rows * runs);
          const int x = taps_first ? i / count : i % (out_rows * runs);
          const int c = x % runs * run, row = x / runs;
          const int o = o0 + (row / 16 * fragments + m) * 16 + row % 16;
          const bool exists = c < line_columns && (narrow || c0 + c < Halo::columns);
          if (o >= M || !exists) continue;
          const int n = (first + h) * (narrow ? line_columns : Halo::columns) + c0 + c;
          const float* const from = shared + h * stage + row * pitch + c;
          apply_run<N>(epilogue, 0, o, n, from);
        }
      }
    }
  }
};

}  // namespace graphc
