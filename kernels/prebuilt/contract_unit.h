// A unit of work of a contraction: the sums of a box of its output, or of a part of the terms.
#pragma once
#include "prebuilt/output_box.h"

namespace graphc::products {
class Unit : private OutputBox {
 public:
  Unit(const Contraction& d, void* const* arguments, long number)
      : OutputBox(d, arguments, d.parts_apart ? number / d.parts : number),
        part(d.parts_apart ? number % d.parts : 0),
        x_end((const float*)arguments[d.x_argument] + d.x_size),
        y_end((const float*)arguments[d.y_argument] + d.y_size) {
    const Axis* const z = d.axes + d.kept();
    most_terms = d.block * (d.block_depth == 1 ? z[1].extent : 1) * z[2].extent;
    both = scratch.get<int32_t>(BOTH, z[2].extent);
    x_listed = {scratch.get<int32_t>(X_AT, most_terms), bool(d.x_neighbours)};
    y_listed = {scratch.get<int32_t>(Y_AT, most_terms), bool(d.y_neighbours)};
    kinds = d.shifts ? rows.classes * columns.classes : columns.classes;
    steps = scratch.get<Step>(STEPS, kinds * (most_terms + AHEAD));
    counts = scratch.get<int32_t>(COUNTS, kinds);
    sum_lines = d.direct ? &Lines::out : &Lines::sums;
    list_products(0);
  }

  void run() {
    if (d.parts_apart) {
      float* own = (float*)arguments[d.workspace] + part * d.sums;
      for (long a = 0; a < d.kept(); a++) own += d.offset(d.axes[a].sums, box.low[a]);
      return add_batches(part, own);
    }
    if (d.direct) return add_batches(0, (float*)arguments[d.out_argument]);
    float* const sums = scratch.get<float>(SUMS, d.sums);
    if (d.strided >= 0) {
      add_strided(sums);
    } else {
      add_batches(0, sums);
      for (long other = 1; other < d.parts; other++) {
        float* const own = scratch.get<float>(PART, d.sums);
        add_batches(other, own);
        for (long i = 0; i < d.sums; i++) sums[i] += own[i];
      }
    }
    finish(sums);
  }

 private:
  long part;  // if parts are apart
  const float *x_end, *y_end;
  Existing *x_terms, *y_terms;
  long most_terms;  // of a block
  int32_t* both;
  ListedTerms x_listed, y_listed;
  long kinds;
  Step* steps;      // by class of rows, if blocks lie alike, and class of columns
  int32_t* counts;  // of the steps; -1 if they are not listed yet
  int32_t* Lines::* sum_lines;

  // Lists the products that exist: of a strided axis, those of one lane.
  void list_products(long lane) {
    x_terms = list_existing(d, lane, row_classes, rows, true, scratch, X_TERMS);
    y_terms = list_existing(d, lane, column_classes, columns, false, scratch, Y_TERMS);
    for (long k = 0; k < kinds; k++) counts[k] = -1;
    x_listed.kind = y_listed.kind = -1;
  }

  // The sums of a part of the terms for all batches.
  void add_batches(long part, float* sums) {
    const float* const x = (const float*)arguments[d.x_argument] + d.x_offset;
    const float* const y = (const float*)arguments[d.y_argument] + d.y_offset;
    each_batch([&](long x_batch, long y_batch, long sums_batch, long out_batch) {
      add_part(part, x + x_batch, y + y_batch, sums + (d.direct ? out_batch : sums_batch));
    });
  }

  // The sums of each lane of a strided axis, which are added by halves.
  void add_strided(float* sums) {
    float* const lanes = scratch.get<float>(PART, PARTIAL * d.sums);
    for (long lane = 0; lane < PARTIAL; lane++) {
      list_products(lane);
      add_batches(0, lanes + lane * d.sums);
    }
    for (long half = PARTIAL / 2; half > 0; half /= 2)
      for (long i = 0; i < half * d.sums; i++) lanes[i] += lanes[i + half * d.sums];
    for (long i = 0; i < d.sums; i++) sums[i] = lanes[i];
  }

  // The sums of a part of the terms, at `sums`.
  void add_part(long part, const float* x, const float* y, float* sums) {
    const Axis* const z = d.axes + d.kept();
    const long each = d.block_depth == 1 ? 1 : z[1].extent;
    const long begin = part * z[0].extent / d.parts, end = (part + 1) * z[0].extent / d.parts;
    if (!d.lanes_summed) {
      add_range(begin * each, end * each,
                [&](Block block, bool first) { add_block(block, x, y, sums, first); });
      return;
    }
    float* const lanes = scratch.get<float>(LANES, rows.count * columns.count * PARTIAL);
    for (int h = 0; h < PARTIAL / W; h++) {
      const long last = least(end, ceil_div(d.lane_blocks - h, PARTIAL / W));
      add_range(begin * each, most(begin, last) * each, [&](Block block, bool first) {
        add_laned_block(block, x + h * d.x_block, y + h * d.y_block, lanes + h * W, first);
      });
    }
    add_up_lanes(lanes, sums);
  }
  template <class Add> void add_range(long begin, long end, const Add& add) {
    for (long at = begin; at < end || at == begin; at += d.block)
      add(Block{at, least(at + d.block, end)}, at == begin);
  }

  // A block, and how much farther it lies than the one whose steps are listed.
  struct Place {
    Block like;
    long x, y;
  };
  Place place(Block block) const {
    if (!d.shifts) return {block, 0, 0};
    const Axis& first = d.axes[d.kept()];
    return {{0, block.end - block.begin},
            d.offset(first.x, block.begin),
            d.offset(first.y, block.begin)};
  }

  struct Listed {
    const Step* steps;
    long count;
  };
  // The steps of a block for a class of rows and one of columns.
  Listed steps_of(Block block, long row_kind, long column_kind, long x_pitch, long y_pitch) {
    const long number = d.shifts ? row_kind * columns.classes + column_kind : column_kind;
    Step* const own = steps + number * (most_terms + AHEAD);
    int32_t& count = counts[number];
    const long whole = d.block;
    if (!d.shifts)
      count = int32_t(list_steps(d, block, x_terms[row_kind], y_terms[column_kind], x_pitch,
                                 y_pitch, both, own));
    else if (count < 0)
      count = int32_t(list_steps(d, {0, least(whole, d.axes[d.kept()].extent)}, x_terms[row_kind],
                                 y_terms[column_kind], x_pitch, y_pitch, both, own));
    if (!d.shifts) return {own, count};
    return {own, count / least(whole, d.axes[d.kept()].extent) * block.end};
  }

  // Registers of columns from number `first` of a class on: a tile for so many rows.
  template <class Body> void each_tile(long kind, int widest, const Body& body) const {
    for (int32_t c = columns.first[kind]; c < columns.first[kind + 1];) {
      const int32_t left = columns.first[kind + 1] - c;
      int32_t n = widest;
      while (n > left) n = d.lanes_summed ? left : n / 2;
      body(c, n);
      c += n;
    }
  }

  // Copies the columns: the terms of each register one behind another.
  const float* pack_columns(Block block, const float* y, long pitch) {
    float* const panel = scratch.get<float>(PANEL, columns.count * pitch);
    const Axis& lane = d.lane();
    int32_t lines_at[W];
    for (int l = 0; l < W; l++) lines_at[l] = int32_t(l * d.lane_step);
    for (long k = 0; k < columns.classes; k++) {
      if (columns.first[k] == columns.first[k + 1]) continue;
      const Terms terms = y_listed.of(d, block, k, y_terms[k]);
      for (long c = columns.first[k]; c < columns.first[k + 1]; c++) {
        const long live =
            lane.y.block ? W : most(0, least(W, lane.extent - columns.sorted.lane[c]));
        pack(y + columns.sorted.operand[c], y_end, lines_at, int(live), terms, panel + c * pitch,
             W);
      }
    }
    return panel;
  }

  // Adds a block's terms to the sums, tile by tile: a tile's rows are copied once, for all columns.
  void add_block(Block block, const float* x, const float* y, float* sums, bool begin) {
    const Place at = place(block);
    x += at.x, y += at.y;
    const long pitch =
        most_terms * W + 64 / sizeof(float);  // registers begin in other sets of a cache
    const float* const panel = d.packed ? pack_columns(at.like, y, pitch) : nullptr;
    float* const copy = scratch.get<float>(COPY, W * most_terms);
    for (long k = 0; k < rows.classes; k++) {
      const int32_t first = rows.first[k], last = rows.first[k + 1];
      if (first == last) continue;
      const bool in_place = last - first <= MOST_IN_PLACE && columns.count <= 16;
      const Terms terms = in_place ? Terms{} : x_listed.of(d, at.like, k, x_terms[k]);
      if (!d.shifts)
        for (long c = 0; c < columns.classes; c++) counts[c] = -1;
      const int cuts = int(ceil_div(last - first, MOST_ROWS));
      for (int cut = 0; cut < cuts; cut++) {
        const int32_t row = first + (last - first) * cut / cuts;
        const int count = first + (last - first) * (cut + 1) / cuts - row;
        if (!in_place) pack(x, x_end, rows.sorted.operand + row, count, terms, copy, W);
        for (long c = 0; c < columns.classes; c++) {
          if (columns.first[c] == columns.first[c + 1]) continue;
          const Listed own = steps_of(at.like, k, c, in_place ? 0 : W, panel ? W : 0);
          each_tile(c, most_columns(count), [&](int32_t column, int width) {
            Tile tile{{copy},
                      {},
                      own.steps,
                      own.count,
                      sums,
                      rows.sorted.*sum_lines + row,
                      columns.sorted.*sum_lines + column,
                      begin};
            if (in_place)
              for (int i = 0; i < count; i++) tile.x[i] = x + rows.sorted.operand[row + i];
            for (int j = 0; j < width; j++)
              tile.y[j] =
                  panel ? panel + (column + j) * pitch : y + columns.sorted.operand[column + j];
            broadcast_tile(count, width, in_place)(tile);
          });
        }
      }
    }
  }

  // The same where the lanes of both operands are summed, into PARTIAL sums for each row and column.
  void add_laned_block(Block block, const float* x, const float* y, float* sums, bool begin) {
    const Place at = place(block);
    x += at.x, y += at.y;
    int32_t* const row_at = scratch.get<int32_t>(LANES_AT, rows.count + columns.count);
    int32_t* const column_at = row_at + rows.count;
    for (long i = 0; i < rows.count; i++) row_at[i] = int32_t(i * columns.count * PARTIAL);
    for (long j = 0; j < columns.count; j++) column_at[j] = int32_t(j * PARTIAL);
    for (long k = 0; k < rows.classes; k++) {
      const int32_t first = rows.first[k], last = rows.first[k + 1];
      if (first == last) continue;
      const int cuts = int(ceil_div(last - first, MOST_IN_PLACE));
      for (long c = 0; c < columns.classes; c++) {
        if (columns.first[c] == columns.first[c + 1]) continue;
        const Listed own = steps_of(at.like, k, c, 0, 0);
        for (int cut = 0; cut < cuts; cut++) {
          const int32_t row = first + (last - first) * cut / cuts;
          const int count = first + (last - first) * (cut + 1) / cuts - row;
          each_tile(c, MOST_LANED_COLUMNS, [&](int32_t column, int width) {
            Tile tile{{}, {}, own.steps, own.count, sums, row_at + row, column_at + column, begin};
            for (int i = 0; i < count; i++) tile.x[i] = x + rows.sorted.operand[row + i];
            for (int j = 0; j < width; j++) tile.y[j] = y + columns.sorted.operand[column + j];
            laned_tile(count, width)(tile);
          });
        }
      }
    }
  }

  // Lanes are added by halves: registers to one, then within it, for W sums at a time.
  void add_up_lanes(const float* lanes, float* sums) {
    const int32_t *const row_at = rows.sorted.*sum_lines, *const column_at =
                                                              columns.sorted.*sum_lines;
    for (long i = 0; i < rows.count; i++)
      for (long j = 0; j < columns.count; j += W) {
        const float* const from = lanes + (i * columns.count + j) * PARTIAL;
        const long live = least(W, columns.count - j);
        vec<float> v[W];
        for (int e = 0; e < W; e++)
          v[e] = e < live ? add_registers(from + e * PARTIAL) : vec<float>{};
        float total[W];
        store(total, contract::lanesums(v));
        for (int e = 0; e < live; e++) sums[row_at[i] + column_at[j + e]] = total[e];
      }
  }
  static vec<float> add_registers(const float* from) {
    vec<float> v[PARTIAL / W];
    for (int h = 0; h < PARTIAL / W; h++) v[h] = load(from + h * W);
    for (int half = PARTIAL / W / 2; half > 0; half /= 2)
      for (int h = 0; h < half; h++) v[h] = v[h] + v[h + half];
    return v[0];
  }
};
}  // namespace graphc::products
