// A box of a contraction's output: its rows and columns, and what becomes of their sums.
#pragma once
#include "prebuilt/strips.h"
#include "prebuilt/terms.h"

namespace graphc::products {
// What scratch memory is for.
enum Memory {
  ROWS,
  COLUMNS,
  X_TERMS,
  Y_TERMS,
  BOTH,
  STEPS,
  COUNTS,
  X_AT,
  Y_AT,
  PANEL,
  COPY,
  SUMS,
  PART,
  LANES,
  LANES_AT,
  MEMORY,
  MEMORIES
};

class OutputBox {
 public:
  // Piece `number` of the output, or the whole of it.
  OutputBox(const Contraction& d, void* const* arguments, long number = -1)
      : d(d),
        arguments(arguments),
        row_classes(d, d.batches, d.batches + d.rows),
        column_classes(d, d.batches + d.rows, d.kept()) {
    const bool whole = number < 0;
    for (long a = d.kept() - 1; a >= 0; a--) {
      const Axis& axis = d.axes[a];
      const long pieces = whole ? 1 : axis.pieces, piece = whole ? 0 : number % pieces;
      const long steps = ceil_div(axis.extent, axis.step);
      number /= pieces;
      box.low[a] = piece * steps / pieces * axis.step;
      box.high[a] = least((piece + 1) * steps / pieces * axis.step, axis.extent);
    }
    rows = list_lines(d, box, d.batches, d.batches + d.rows, 1, true, row_classes, scratch, ROWS);
    columns = list_lines(d, box, d.batches + d.rows, d.kept(), d.lanes_summed ? 1 : W, false,
                         column_classes, scratch, COLUMNS);
  }

  // Adds the parts of a chunk's rows in ascending order, and copies the sums to the output.
  void add_parts(long chunk) {
    const float* const workspace = (const float*)arguments[d.workspace];
    const long begin = chunk * rows.count / d.finish_chunks;
    const long end = (chunk + 1) * rows.count / d.finish_chunks;
    const long width = d.lanes_summed ? 1 : W, row = columns.count * width;
    float* const sums = scratch.get<float>(SUMS, (end - begin) * row);
    int32_t* const row_at = scratch.get<int32_t>(COUNTS, end - begin + columns.count);
    int32_t* const column_at = row_at + (end - begin);
    for (long j = 0; j < columns.count; j++) column_at[j] = int32_t(j * width);
    for (long i = begin; i < end; i++) row_at[i - begin] = int32_t((i - begin) * row);
    each_batch([&](long, long, long sums_batch, long out_batch) {
      for (long i = begin; i < end; i++)
        for (long j = 0; j < columns.count; j++) {
          const float* const from =
              workspace + sums_batch + rows.natural.sums[i] + columns.natural.sums[j];
          float* const to = sums + row_at[i - begin] + column_at[j];
          for (long l = 0; l < width; l++) {
            float total = from[l];
            for (long p = 1; p < d.parts; p++) total += from[p * d.sums + l];
            to[l] = total;
          }
        }
      Lines own = rows.natural, other = columns.natural;
      own.sums = row_at, own.out += begin, other.sums = column_at;
      copy(sums, (float*)arguments[d.out_argument] + out_batch, own, end - begin, other);
    });
  }

  // What becomes of the box's sums, unless tiles have written them to the output.
  void finish(float* sums) {
    if (d.epilogue) return play(sums);
    float* const out = (float*)arguments[d.out_argument];
    each_batch([&](long, long, long sums_batch, long out_batch) {
      copy(sums + sums_batch, out + out_batch, rows.natural, rows.count, columns.natural);
    });
  }

 protected:
  const Contraction& d;
  void* const* arguments;
  Classes row_classes, column_classes;
  Box box;
  Side rows, columns;
  inline static thread_local Scratches<MEMORIES> scratch;

  template <class Body> void each_batch(const Body& body) const {
    long number = 1;
    for (long a = 0; a < d.batches; a++) number *= box.high[a] - box.low[a];
    for (long u = 0; u < number; u++) {
      long rest = u, at[4] = {};
      for (long a = d.batches - 1; a >= 0; a--) {
        const long n = box.high[a] - box.low[a], i = box.low[a] + rest % n;
        rest /= n;
        const Axis& axis = d.axes[a];
        at[0] += d.offset(axis.x, i), at[1] += d.offset(axis.y, i);
        at[2] += d.offset(axis.sums, i - box.low[a]), at[3] += d.offset(axis.out, i);
      }
      body(at[0], at[1], at[2], at[3]);
    }
  }

 private:
  // Plays the epilogue on the unit's box, or on each index of an axis apart.
  void play(float* sums) {
    char** const memory = scratch.get<char*>(MEMORY, d.arguments + 1);
    for (long n = 0; n < d.arguments; n++) memory[n] = (char*)arguments[n];
    for (long a = 0; a < d.kept(); a++)
      if (a != d.apart) sums -= d.offset(d.axes[a].sums, box.low[a]);
    const long first = d.apart < 0 ? 0 : box.low[d.apart];
    const long end = d.apart < 0 ? 1 : box.high[d.apart];
    for (long u = first; u < end; u++) {
      float* own = sums;
      if (d.apart >= 0) own += d.offset(d.axes[d.apart].sums, u - first) - u * d.apart_step;
      memory[d.arguments] = (char*)own;
      long low[8], high[8];
      for (long e = 0; e < d.finished; e++) {
        const long a = d.finished_axis[e], extent = d.finished_extent[e];
        const long factor = d.finished_factor[e], divisor = d.finished_divisor[e];
        const long begin = a < 0 ? 0 : a == d.apart ? u : box.low[a];
        const long behind = a < 0 ? extent : a == d.apart ? u + 1 : box.high[a];
        low[e] = begin * factor / divisor, high[e] = least(behind * factor / divisor, extent);
      }
      strips::run(*d.table<strips::Program>(d.epilogue), memory, low, high);
    }
  }

  // The sums of `count` rows `r` and of columns `c`.
  void copy(const float* sums, float* out, const Lines& r, long count, const Lines& c) {
    const Walk& lane = d.lane().out;
    for (long j = 0; j < columns.count; j++) {
      const long live = d.lanes_summed ? 1 : d.lane().extent - c.lane[j];
      const float* const from = sums + c.sums[j];
      float* const to = out + c.out[j];
      if (!d.lanes_summed && (lane.block || lane.stride == 1)) {
        for (long i = 0; i < count; i++) copy_register(from + r.sums[i], to + r.out[i], live);
        continue;
      }
      long i = 0;
      if (live >= W)
        for (; i + W <= count && r.out[i + W - 1] - r.out[i] == W - 1; i += W)
          turn(from, r.sums + i, W, to + r.out[i], lane.stride);
      for (; i < count; i++)
        for (long l = 0; l < least(W, live); l++)
          to[r.out[i] + l * lane.stride] = from[r.sums[i] + l];
    }
  }
  void copy_register(const float* from, float* to, long live) const {
    if (live >= W) return store(to, load(from));
    for (long l = 0; l < live; l++) to[l] = from[l];
    if (d.lane().out.block)
      for (long l = most(live, 0); l < W; l++) to[l] = 0;
  }
};
}  // namespace graphc::products
