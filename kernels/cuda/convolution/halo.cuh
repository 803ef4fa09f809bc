// halo.cuh: a convolution by tensor cores whose block holds the pixels that its sums read. Tile::taps
// neighbouring taps are a step: their columns of filters pass through a ring as in contract.cuh.
//
// k is in the order part, tap, channel: a patch has `depth` channels of a pixel, one part of all; while
// one is used the next is under way. With `splits` > 1 each block has some of these parts. Rows are
// output pixels, and besides what staging.cuh says Halo has
//   lines    of input that Lines lines of output read, or all of an image
//   gap      bytes between two images in shared memory beyond what they take
//   skips    whether fragments of which no row meets a tap are left out
//
// A block computes BN columns of Lines lines of each of Images images, which are a part of the rows to
// columns.cuh. Its row m is that of image m % Images, so that 16 rows, a fragment, are few pixels.
// Fragments are dealt out to warps in turn. A row whose tap lies in the padding reads a line of zeros.
//
// A pixel takes 16 bytes more than its channels: ldmatrix then meets all banks once where 8 pixels
// lie side by side, or by `gap` in 8 images.
#pragma once
#include "cuda/convolution/staging.cuh"

namespace graphc {

// The columns' tile of a step, in lines that are an odd number of 16 bytes, or of 8 mod 16 floats.
template <class Access, int Outer, int BK>
struct PaddedTile {
  using T = typename Access::element;
  static constexpr bool along_k = Access::along_k;
  static constexpr int quad = 16 / sizeof(T);
  static constexpr int line = along_k ? BK : Outer, lines = along_k ? Outer : BK;
  static constexpr int odd = line / quad % 2 ? line : line + quad;
  static constexpr int pitch = along_k || sizeof(T) == 2 ? odd : line % 16 ? line : line + 8;
  static constexpr int bytes = lines * pitch * sizeof(T);
  GRAPHC_INLINE static int at(int outer, int k) {
    return along_k ? outer * pitch + k : k * pitch + outer;
  }
};

// The largest divisor of `count` that is at most `most`, or 1.
__host__ __device__ constexpr int divisor(int count, int most) {
  int found = 1;
  for (int i = 2; i <= most; i++) found = count % i == 0 ? i : found;
  return found;
}

template <int Images_, int Lines_, int BN_, int Depth_, int Warps_, int Stages_, int Taps_>
struct HaloTile {
  static constexpr int Images = Images_, Lines = Lines_, BN = BN_, depth = Depth_;
  static constexpr int warps = Warps_, stages = Stages_, threads = 32 * Warps_, taps = Taps_;
};

template <class Problem, class Halo, class Tile>
struct HaloProduct {
  using B = typename Problem::B;
  using T = typename B::element;
  static constexpr int N = Problem::N, K = Problem::K, BN = Tile::BN, depth = Tile::depth;
  static constexpr int Images = Tile::Images, Lines = Tile::Lines, threads = Tile::threads;
  static constexpr int taps = Halo::R * Halo::S, splits = Problem::splits;
  static constexpr int parts = K / depth / taps / splits;  // of a block
  static constexpr int deep = depth * Tile::taps, steps = parts * taps / Tile::taps;
  static constexpr int tiles_n = ceil_div(N, BN), bands = ceil_div(Halo::P, Lines);
  static constexpr int rows = Images * Lines * Halo::Q, fragments = ceil_div(rows, 16);
  static constexpr int held = ceil_div(fragments, Tile::warps), across = BN / 8;
  static constexpr int half = 16 / sizeof(T), inner = depth / (2 * half);
  // Times the k of a fragment whose columns are in registers together: 48 registers at most.
  static constexpr int together = divisor(inner, 24 / across);
  static_assert(depth % (2 * half) == 0 && BN % 8 == 0 && K % (depth * taps * splits) == 0,
                "whole");
  static_assert(taps <= 31, "the taps of a row are bits of a word");

  using SharedB = PaddedTile<B, BN, deep>;
  static constexpr int pixel = depth * sizeof(T) + 16, line = Halo::W * pixel;
  static constexpr int image = Halo::lines * line + Halo::gap, patch = Images * image;
  static constexpr int patches = parts > 1 ? 2 : 1, zeros = patches * patch;
  static constexpr int ring = zeros + depth * sizeof(T);
  static constexpr int ahead = Tile::stages - 1;
  static_assert(taps % Tile::taps == 0 && taps / Tile::taps >= ahead,
                "a patch arrives before its first step");
  static constexpr int pitch = BN + 8, staged = 16 * Tile::warps * pitch * sizeof(float);
  static constexpr int whole = ring + Tile::stages * SharedB::bytes;
  static constexpr int bytes = whole > staged ? whole : staged;

  // Copies columns of a step. What a thread copies of each lies where it did, but for the tap.
  struct Columns {
    static constexpr int vector = smaller(B::vector, SharedB::quad), size = vector * sizeof(T);
    static constexpr int per_line = SharedB::line / vector, all = per_line * SharedB::lines;
    static constexpr int count = ceil_div(all, threads);
    static_assert(size >= 4, "copies of at least 4 bytes");
    decltype(B::outer(0, 0).offset) from[count];
    int live[count];

    GRAPHC_INLINE explicit Columns(int n0) {
#pragma unroll
      for (int i = 0; i < count; i++) {
        const int line = (threadIdx.x + i * threads) / per_line;
        const int x = (threadIdx.x + i * threads) % per_line * vector;
        const int n = n0 + (B::along_k ? line : x), k = B::along_k ? x : line;
        const auto place =
            B::at(B::outer(0, smaller(n, N - (B::along_k ? 1 : vector))), B::depth(k));
        from[i] = place.offset;
        live[i] = n < N ? place.live * int(sizeof(T)) : 0;
      }
    }
    GRAPHC_INLINE void start(unsigned char* tile, const T* base, int k0) const {
      const auto further = B::depth(k0).offset;
#pragma unroll
      for (int i = 0; i < count; i++) {
        const int at = threadIdx.x + i * threads, line = at / per_line;
        if (all % threads && i + 1 == count && at >= all) break;
        unsigned char* const to =
            tile + (line * SharedB::pitch + at % per_line * vector) * sizeof(T);
        copy_async<size>(to, base + (from[i] + further), live[i]);
      }
    }
  };

  // Calls visitor(place in the patch, pixel, channel) for what this thread copies, with the pixels of
  // all lines and images numbered one after another.
  template <class Visitor>
  GRAPHC_INLINE static void each_chunk(const Visitor& visitor) {
    constexpr int chunks = depth / half, of_image = Halo::lines * Halo::W;
    constexpr int pixels = Images * of_image, all = pixels * chunks;
    auto visit = [&](int i, int c) {
      visitor(i * pixel + (Images > 1 ? i / of_image * Halo::gap : 0) + c * 16, i, c * half);
    };
    // Eight threads side by side, which shared memory serves at once, have as many banks: all chunks
    // of a pixel, or one of few chunks of each of eight pixels.
    constexpr int across = chunks < 8 ? 8 : 1;
    if constexpr (threads % (across * chunks) == 0) {  // a thread keeps its channels
      const int c = threadIdx.x / across % chunks;
      const int first = threadIdx.x / (across * chunks) * across + threadIdx.x % across;
#pragma unroll 4
      for (int i = first; i < pixels; i += threads / chunks) visit(i, c);
    } else {
#pragma unroll 4
      for (int i = threadIdx.x; i < all; i += threads) visit(i / chunks, i % chunks);
    }
  }
  // Lines and images lie one behind the other in memory: what is before the first of an image's lines,
  // or behind its last one, or the last image, does not exist.
  GRAPHC_INLINE static void copy_patch(unsigned char* to, const T* a, int image0, int top,
                                       int part) {
    static_assert(Halo::line == Halo::W * Halo::pixel, "dense lines");
    static_assert(Halo::image == Halo::H * Halo::line, "dense images");
    static_assert(Images == 1 || Halo::lines == Halo::H, "whole images");
    const int before = -top * Halo::W;
    const int end = (Images == 1 ? Halo::H - top : (Halo::images - image0) * Halo::H) * Halo::W;
    const int start = image0 * Halo::image + top * Halo::line + part * depth;
    each_chunk([&](int at, int i, int c) {
      const int left = Halo::channels % depth ? Halo::channels - part * depth - c : half;
      const int live = i >= before && i < end && left > 0 ? smaller(left, half) : 0;
      copy_async<16>(to + at, a + static_cast<unsigned>(start + i * Halo::pixel + c),
                     live * int(sizeof(T)));
    });
  }
  // What this thread has copied and waited for, as the nearest that tensor cores take.
  GRAPHC_INLINE static void round_patch(unsigned char* patch) {
    if constexpr (Product<T>::parts == 1 && sizeof(T) == 4)
      each_chunk([&](int at, int, int) { round_four(reinterpret_cast<float*>(patch + at)); });
  }

  // Columns of fragments n and n + 1 at k; of the last of an odd number n alone.
  GRAPHC_INLINE static void load_columns(unsigned (&to)[1][4], const T* tile, int n, int k) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = n + 1 < across ? lane / 16 : 0;
    const int o = (n + high) * 8, c = k + low * half;
    if constexpr (SharedB::along_k) {
      load_matrices<false>(to[0], tile + SharedB::at(o + lane % 8, c));
    } else if constexpr (sizeof(T) == 2) {
      load_matrices<true>(to[0], tile + SharedB::at(o, c + lane % 8));
    } else {
#pragma unroll
      for (int i = 0; i < (n + 1 < across ? 4 : 2); i++)
        to[0][i] = Fragments<SharedB>::bits_of(
            tile[SharedB::at((n + i / 2) * 8 + lane / 4, k + lane % 4 + i % 2 * 4)]);
    }
    Product<T>::split(to);
  }

  // A row's pixel: its place in the patch at tap (0, 0) without the border, and its taps' bits.
  struct Row {
    int at;
    unsigned taps;
  };
  GRAPHC_INLINE static Row row_of(int m, int band, int first) {
    const int n = m % Images, p = m / Images / Halo::Q, q = m / Images % Halo::Q;
    const int y = (band * Lines + p) * Halo::down + Halo::top, x = q * Halo::across + Halo::left;
    unsigned columns = 0, found = 0;
#pragma unroll
    for (int s = 0; s < Halo::S; s++) {
      const int w = x + s * Halo::tap_across;
      if (w >= 0 && w < Halo::W) columns |= 1u << s;
    }
#pragma unroll
    for (int r = 0; r < Halo::R; r++) {
      const int h = y + r * Halo::tap_down;
      if (h >= 0 && h < Halo::H) found |= columns << (r * Halo::S);
    }
    const bool exists = m < rows && band * Lines + p < Halo::P;
    return {n * image + (y - first) * line + x * pixel, exists ? found : 0};
  }

  // Adds a fragment's products with columns of `together` times the k of one.
  GRAPHC_INLINE static void add(float (&sum)[across][4], const unsigned char* from,
                                const unsigned (&columns)[together][ceil_div(across, 2)][1][4]) {
    unsigned pixels[together][4];
#pragma unroll
    for (int j = 0; j < together; j++) load_matrices<false>(pixels[j], from + j * 32);
#pragma unroll
    for (int j = 0; j < together; j++)
#pragma unroll
      for (int n = 0; n < across; n++) {
        const auto& both = columns[j][n / 2][0];
        const unsigned column[2] = {both[n % 2 * 2], both[n % 2 * 2 + 1]};
        multiply(T{}, sum[n], pixels[j], column);
      }
  }

  template <class Block, class Epilogue>
  GRAPHC_INLINE static void run_in(const Block& block, unsigned char* shared, const T* a,
                                   const T* b, const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int n0 = block.x() % tiles_n * BN, band = block.x() / tiles_n % bands;
    const int image0 = block.x() / (tiles_n * bands) * Images;
    constexpr int lowest = Halo::tap_down < 0 ? (Halo::R - 1) * Halo::tap_down : 0;
    const int first = Halo::lines == Halo::H ? 0 : band * Lines * Halo::down + Halo::top + lowest;
    const int part0 = splits > 1 ? block.y() * parts : 0;
    const Columns filters(n0);
    auto load = [&](int i) {
      if (i < steps)
        filters.start(shared + ring + i % Tile::stages * SharedB::bytes, b,
                      part0 * taps * depth + i * deep);
      copy_commit();
    };
    copy_patch(shared, a, image0, first, part0);
#pragma unroll
    for (int i = 0; i < ahead; i++) load(i);
    if (threadIdx.x < depth * sizeof(T) / 4)
      reinterpret_cast<float*>(shared + zeros)[threadIdx.x] = 0;
    Row row[held];
    unsigned met[held];
#pragma unroll
    for (int f = 0; f < held; f++) {
      row[f] = row_of((f * Tile::warps + warp) * 16 + lane % 16, band, first);
      met[f] = row[f].taps;
#pragma unroll
      for (int i = 1; i < 16; i *= 2) met[f] |= shuffle_xor(met[f], i);
    }
    float sum[held][across][4] = {};
    for (int i = 0, tap = 0, part = 0; i < steps; i++) {
      copy_wait<ahead - 1>();
      if (tap == 0) round_patch(shared + part % patches * patch);
      block.sync();  // step i has arrived for all, and all have left the step before
      if (parts > 1 && tap == 0 && part + 1 < parts)
        copy_patch(shared + (part + 1) % patches * patch, a, image0, first, part0 + part + 1);
      load(i + ahead);
      const T* const tile =
          reinterpret_cast<const T*>(shared + ring + i % Tile::stages * SharedB::bytes);
      const unsigned char* const pixels = shared + part % patches * patch + lane / 16 * 16;
#pragma unroll
      for (int more = 0; more < Tile::taps; more++, tap++) {
        const unsigned char* const further = pixels + tap / Halo::S * (Halo::tap_down * line) +
                                             tap % Halo::S * (Halo::tap_across * pixel);
        const unsigned char* from[held];
#pragma unroll
        for (int f = 0; f < held; f++)
          from[f] = row[f].taps >> tap & 1 ? further + row[f].at : shared + zeros + lane / 16 * 16;
#pragma unroll
        for (int k = 0; k < inner; k += together) {
          unsigned columns[together][ceil_div(across, 2)][1][4];
#pragma unroll
          for (int j = 0; j < together; j++)
#pragma unroll
            for (int n = 0; n < across; n += 2)
              load_columns(columns[j][n / 2], tile, n, more * depth + (k + j) * 2 * half);
#pragma unroll
          for (int f = 0; f < held; f++)
            if (!Halo::skips || met[f] >> tap & 1) add(sum[f], from[f] + k * 32, columns);
        }
      }
      if (tap == taps) tap = 0, part++;
    }
    finish(block, shared, sum, n0, band * Lines, image0, epilogue);
  }

  // Sums leave by shared memory; what the epilogue adds up of columns is a partial result of the block.
  template <class Block, class Epilogue>
  GRAPHC_INLINE static void finish(const Block& block, unsigned char* shared,
                                   const float (&sum)[held][across][4], int n0, int p0, int image0,
                                   const Epilogue& epilogue) {
    constexpr int run = Epilogue::run, wide = BN / run, lines = threads / wide;
    if constexpr (sums_columns<Epilogue>) {
      static_assert(N % run == 0, "a run exists or does not");
      auto results = Epilogue::Results::identity();
      each_run<run, lines * wide, 2>(
          block, shared, sum, n0, p0, image0, [&](int pixel, int n, const float* sums) {
            epilogue(0, pixel, n, *reinterpret_cast<const Run<float, run>*>(sums), results);
          });
      static_assert(threads / 2 * sizeof(results) <= bytes, "they fit there too");
      store_columns<wide, lines, ceil_div(Halo::images, Images) * bands, tiles_n>(
          block, shared, results, epilogue, block.x() / tiles_n, n0 / BN,
          n0 / run + threadIdx.x % wide, N / run);
    } else {
      constexpr int active = knows_columns<Epilogue> ? lines * wide : threads;
      const auto& own = of_columns<true>(epilogue, n0 + threadIdx.x % wide * run);
      each_run<run, active, 4>(
          block, shared, sum, n0, p0, image0,
          [&](int pixel, int n, const float* sums) { apply_run<N>(own, 0, pixel, n, sums); });
    }
  }

  // Calls visitor(pixel, column, sums) for runs of sums, a fragment of each warp after the other:
  // neighbouring threads, so many of which are `Active`, have neighbours.
  template <int run, int Active, int Unrolled, class Block, class Visitor>
  GRAPHC_INLINE static void each_run(const Block& block, unsigned char* shared,
                                     const float (&sum)[held][across][4], int n0, int p0,
                                     int image0, const Visitor& visitor) {
    constexpr int wide = BN / run, all = 16 * Tile::warps * wide;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* const stage = reinterpret_cast<float*>(shared);
    copy_wait<0>();
#pragma unroll
    for (int f = 0; f < held; f++) {
      block.sync();
#pragma unroll
      for (int n = 0; n < across; n++)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          *reinterpret_cast<Run<float, 2>*>(stage + (warp * 16 + lane / 4 + i * 4) * pitch + n * 8 +
                                            lane % 4 * 2) = {{sum[f][n][i], sum[f][n][i + 1]}};
      block.sync();
#pragma unroll(Unrolled)
      for (int i = threadIdx.x < Active ? threadIdx.x : all; i < all; i += Active) {
        const int m = f * Tile::warps * 16 + i / wide, n = n0 + i % wide * run;
        const int number = image0 + m % Images, p = p0 + m / Images / Halo::Q;
        if (m >= rows || number >= Halo::images || p >= Halo::P || n >= N) continue;
        const int pixel = (number * Halo::P + p) * Halo::Q + m / Images % Halo::Q;
        visitor(pixel, n, stage + i / wide * pitch + i % wide * run);
      }
    }
  }
};

}  // namespace graphc
