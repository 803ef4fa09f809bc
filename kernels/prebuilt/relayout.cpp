// Conversions between row-major and lanes, of any extents: blocks of W x W elements in registers, as
// generated kernels convert them, and what is less than a block element by element.
#include "cpu/shared/transpose.h"

namespace graphc::conversion {
namespace {
// What kernels/prebuilt/relayout.py writes. `kind` is an index of FUNCTIONS.
struct Description {
  int64_t kind, to_lanes, repeats, rows, columns, run, tiles, chunks;
};

// The block of `rows` rows that begins at x (row-major, `pitch` columns) and at y (lanes), columns
// [begin, end) of it.
template <class T>
void to_lanes(const T* x, T* y, long rows, long pitch, long begin, long end) {
  long m = begin;
  if (rows == W)
    for (; m + W <= end; m += W) transpose<W, W, true>(x + m, pitch, y + m * W, W);
  for (; m < end; m++)
    for (int l = 0; l < W; l++) y[m * W + l] = l < rows ? x[l * pitch + m] : T{};
}
template <class T>
void from_lanes(const T* y, T* x, long rows, long pitch, long begin, long end) {
  long m = begin;
  if (rows == W)
    for (; m + W <= end; m += W) transpose<W, W, false>(y + m * W, W, x + m, pitch);
  for (; m < end; m++)
    for (int l = 0; l < rows; l++) x[l * pitch + m] = y[m * W + l];
}

// Tiles [begin, end): `relayout` of transpose.h.
template <class T> void convert(const Description& d, void* const* arguments, long begin,
                                long end) {
  const auto* from = (const T*)arguments[0];
  auto* to = (T*)arguments[1];
  const long runs = (d.columns + d.run - 1) / d.run, blocks = (d.rows + W - 1) / W;
  for (long tile = begin; tile < end; tile++) {
    const long repeat = tile / (runs * blocks), block = tile / runs - repeat * blocks;
    const long first = tile % runs * d.run, last = least(first + d.run, d.columns);
    const long plain = (repeat * d.rows + block * W) * d.columns;
    const long laned = (repeat * blocks + block) * W * d.columns;
    const long rows = least(d.rows - block * W, W);
    if (d.to_lanes) to_lanes(from + plain, to + laned, rows, d.columns, first, last);
    else from_lanes(from + laned, to + plain, rows, d.columns, first, last);
  }
}

constexpr decltype(&convert<float>) FUNCTIONS[] = {convert<uint8_t>, convert<half>, convert<bfloat>,
                                                   convert<float>, convert<double>};
}  // namespace
}  // namespace graphc::conversion

extern "C" void graphc_relayout(void* const* arguments, int, int chunk) {
  using namespace graphc::conversion;
  const auto& d = *(const Description*)arguments[-1];
  FUNCTIONS[d.kind](d, arguments, chunk * d.tiles / d.chunks, (chunk + 1) * d.tiles / d.chunks);
}
