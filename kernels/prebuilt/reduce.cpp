// A kernel with reductions: its loops' bodies as strips, which leave the terms of blocks of rows in
// scratch memory, and sums of these in the order stated.
#include "prebuilt/reduce.h"

#include "prebuilt/row_functions.h"
#include "prebuilt/scratch.h"

namespace graphc::reduce {
namespace {
thread_local Scratch scratch;
constexpr int KEPT = 8;  // programs that are made ready once for all blocks
thread_local strips::Kept kept[KEPT];

// A range of indices along each axis.
struct Box {
  long low[strips::AXES], high[strips::AXES];
};

class Rows {
 public:
  Rows(const Reduce& kernel, void* const* arguments)
      : kernel_(kernel), sums_(kernel.array<Sum>(kernel.sums_at)) {
    char* at = scratch.at_least(kernel.scratch, 4096);
    memory_ = (char**)at;
    for (long i = 0; i < kernel.arguments; i++) memory_[i] = (char*)arguments[i];
    base_ = at;
    for (auto& each : kept) each.program = nullptr;
  }

  // A part of the rows, with its share of the sums over all rows.
  void play_columns(char* workspace, long part) {
    const Reduce& k = kernel_;
    const int d = k.rows.axes[0];
    columns_ = workspace + part * k.column_bytes;
    __builtin_memset(columns_, 0, k.column_bytes);
    const long end =
        least((part + 1) * k.column_steps / k.column_parts * k.column_step, k.extents[d]);
    Box box;
    for (long r = part * k.column_steps / k.column_parts * k.column_step; r < end;
         r += k.rows.cut) {
      box.low[d] = r, box.high[d] = least(r + k.rows.cut, end);
      first_row_ = r, rows_ = box.high[d] - r;
      play_rows(box);
    }
  }

  // Block number `block` of the rows.
  void play(long block) {
    const Reduce& k = kernel_;
    Box box;
    long index[strips::AXES];
    const Cut& rows = k.rows;
    unpack(block, rows, k.extents, index);
    first_row_ = 0, rows_ = 1;
    for (int j = 0; j < rows.rank; j++) {
      const int d = rows.axes[j];
      box.low[d] = j <= rows.cut_axis ? index[j] : 0;
      box.high[d] = j < rows.cut_axis    ? index[j] + 1
                    : j == rows.cut_axis ? least(index[j] + rows.cut, k.extents[d])
                                         : k.extents[d];
      first_row_ += box.low[d] * rows.strides[j];
      rows_ *= box.high[d] - box.low[d];
    }
    play_rows(box);
  }

 private:
  void play_rows(Box& box) {
    const Reduce& k = kernel_;
    for (int s = 0; s < k.sums; s++) {
      const long size = sums_[s].bytes;
      memory_[k.arguments + k.sums + s] = base_ + sums_[s].results - first_row_ * size;
    }
    const Once* once = k.array<Once>(k.once_at);
    for (int i = 0; i < k.once; i++)
      memory_[k.arguments + 2 * k.sums + i] = base_ + once[i].place - first_row_ * once[i].bytes;
    const Loop* loops = k.array<Loop>(k.loops_at);
    for (int l = 0; l < k.loops; l++) {
      if (loops[l].first) {
        for (int j = 0; j < k.row.rank; j++)
          box.low[k.row.axes[j]] = 0, box.high[k.row.axes[j]] = 1;
        run(loops[l].first, 2 * l, box);
      }
      if (loops[l].each || loops[l].begin < loops[l].end) play_loop(loops[l], box);
    }
  }

  // The indices of unit `unit` along the axes up to the cut one.
  static void unpack(long unit, const Cut& cut, const int64_t* extents, long* index) {
    for (int j = cut.cut_axis; j >= 0; j--) {
      const long count = j == cut.cut_axis ? cut.pieces : extents[cut.axes[j]];
      index[j] = unit % count * (j == cut.cut_axis ? cut.cut : 1);
      unit /= count;
    }
  }

  // Plays the program that lies at `program`, one of many.
  void run(int64_t program, int number, const Box& box) const {
    strips::run(*(const strips::Program*)((const char*)&kernel_ + program), memory_, box.low,
                box.high, number < KEPT ? &kept[number] : nullptr);
  }
  int number_of(const Loop& loop) const {
    return 2 * int(&loop - kernel_.array<Loop>(kernel_.loops_at)) + 1;
  }

  void play_loop(const Loop& loop, Box box) {
    const Reduce& k = kernel_;
    for (int s = loop.begin; s < loop.end; s++)
      if (!sums_[s].column) functions(s).clear(base_ + sums_[s].results, aligned_rows());
    if (loop.begin == loop.end || k.parts == 1) {
      for (int j = 0; j < k.row.rank; j++)
        box.low[k.row.axes[j]] = 0, box.high[k.row.axes[j]] = k.extents[k.row.axes[j]];
      if (loop.begin == loop.end) run(loop.each, number_of(loop), box);
      else play_part(loop, box);
      return;
    }
    const int first = k.row.axes[0];
    for (long part = 0; part < k.parts; part++) {
      for (int j = 0; j < k.row.rank; j++)
        box.low[k.row.axes[j]] = 0, box.high[k.row.axes[j]] = k.extents[k.row.axes[j]];
      box.low[first] = least(part * k.steps / k.parts * k.step, k.extents[first]);
      box.high[first] = least((part + 1) * k.steps / k.parts * k.step, k.extents[first]);
      if (box.low[first] < box.high[first]) play_part(loop, box);
    }
  }

  // The same where a part is one piece, of one run of whole registers, and all sums are of a kind that
  // whole() adds.
  bool joins_whole(const Loop& loop, const Box& part) const {
    const Reduce& k = kernel_;
    if (!k.along || k.across || k.row.rank != 1 || k.groups != 1 || k.chains * W % 16 != 0 ||
        k.chains * W > 64)
      return false;
    const int d = k.row.axes[0];
    if (part.high[d] - part.low[d] > k.row.cut || (part.high[d] - part.low[d]) % W ||
        part.low[d] / W % k.chains)
      return false;
    for (int s = loop.begin; s < loop.end; s++)
      if (!sums_[s].column && !functions(s).whole) return false;
    return true;
  }

  // A part of the rows' elements: its sums are joined to the results.
  void play_part(const Loop& loop, const Box& part) {
    const Reduce& k = kernel_;
    whole_ = joins_whole(loop, part);
    if (whole_) return play_piece(loop, part);
    const long count = k.along ? rows_ * k.chains * k.groups * W : k.chains * k.pitch;
    for (int s = loop.begin; s < loop.end; s++)
      if (!sums_[s].column) functions(s).clear(base_ + sums_[s].partial, count);
    Box box = part;
    play_pieces(loop, part, box, 0);
    for (int s = loop.begin; s < loop.end; s++) {
      if (sums_[s].column) continue;
      char *partial = base_ + sums_[s].partial, *results = base_ + sums_[s].results;
      const long size = sums_[s].bytes;
      if (!k.along) {
        functions(s).finish_beside(partial, int(k.chains), k.pitch, rows_, results);
        continue;
      }
      for (long r = 0; r < rows_; r++)
        functions(s).finish(partial + r * k.chains * k.groups * W * size, int(k.chains),
                            int(k.groups), results + r * size);
    }
  }

  // The pieces of a part, in order: single indices along the axes before the cut one.
  void play_pieces(const Loop& loop, const Box& part, Box& box, int j) {
    const Cut& row = kernel_.row;
    if (j > row.cut_axis) return play_piece(loop, box);
    const int d = row.axes[j];
    const long step = j < row.cut_axis ? row.single[j] : row.cut;
    for (long i = part.low[d]; i < part.high[d]; i += step) {
      box.low[d] = i, box.high[d] = least(i + step, part.high[d]);
      play_pieces(loop, part, box, j + 1);
    }
  }

  void play_piece(const Loop& loop, const Box& box) {
    const Reduce& k = kernel_;
    const Cut& row = k.row;
    const int last = row.axes[row.rank - 1];
    const bool beside = sums_[loop.begin].memory >= 0 && rows_ % W == 0;
    long first = 0, runs = 1;
    for (int j = 0; j < row.rank; j++) {
      const int d = row.axes[j];
      const long blocks = d == k.lane ? k.width : 1;
      first += box.low[d] / blocks * row.strides[j];
      if (j + 1 < row.rank) runs *= (box.high[d] - box.low[d] + blocks - 1) / blocks;
    }
    const long length = box.high[last] - box.low[last];
    const long run = k.across ? length * k.width : k.along ? (length + W - 1) / W * W : length;
    if (loop.each && (k.along || !beside)) {
      for (int s = loop.begin; s < loop.end; s++) {
        const long size = sums_[s].bytes;
        char* const terms = base_ + sums_[s].terms;
        memory_[k.arguments + s] =
            terms - (k.along ? first + first_row_ * k.pitch : first * k.pitch + first_row_) * size;
        if (k.across && box.high[k.lane] % k.width)
          for (long r = 0; r < rows_; r++)
            functions(s).clear(terms + r * k.pitch * size, runs * run);
      }
      this->run(loop.each, number_of(loop), box);
    }
    for (int s = loop.begin; s < loop.end; s++)
      if (sums_[s].column) add_columns(sums_[s], box, first, runs * run);
      else if (whole_) add_whole(sums_[s], functions(s), box, length);
      else if (k.along) add_along(sums_[s], functions(s), box, runs, length);
      else add_beside(sums_[s], functions(s), box, beside, runs, length);
  }

  // The terms of a piece, from element `first` of a row on, to sums over all rows: one for each element
  // of a row, or 16 where rows lie beside each other, which take the rows in turn.
  void add_columns(const Sum& sum, const Box& box, long first, long elements) const {
    if (sum.dtype) add_columns_of<double>(sum, box, first, elements);
    else add_columns_of<float>(sum, box, first, elements);
  }
  template <class T>
  void add_columns_of(const Sum& sum, const Box& box, long first, long elements) const {
    T* const columns = (T*)(columns_ + sum.partial);
    const long pitch = pitch_of(sum);
    const T* const terms = (const T*)terms_of(sum, box);
    if (kernel_.along)
      for (long e = 0; e < elements; e += 4 * W) {
        vec<T> own[4];
        const int count = int(least(4, (elements - e) / W));
        T* const to = columns + first + e;
        for (int i = 0; i < count; i++) own[i] = load(to + i * W);
        const T* x = terms + e;
        if (count == 4)
          for (long r = 0; r < rows_; r++, x += pitch)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) own[i] += load(x + i * W);
        else
          for (long r = 0; r < rows_; r++, x += pitch)
            for (int i = 0; i < count; i++) own[i] += load(x + i * W);
        for (int i = 0; i < count; i++) store(to + i * W, own[i]);
      }
    else
      for (long e = 0; e < elements; e++)
        for (long r = 0; r < rows_; r++) columns[(first + e) * 16 + r % 16] += terms[e * pitch + r];
  }

  // Where run `o` of a piece begins, and its row, if terms are where they come from.
  const char* direct_run(const Sum& sum, const Box& box, long o, long row) const {
    const Cut &kept = kernel_.rows, &own = kernel_.row;
    long at = 0;
    for (int j = 0; j < kept.rank; j++) at += box.low[kept.axes[j]] * sum.strides[kept.axes[j]];
    if (kept.rank) at += row * sum.strides[kept.axes[kept.rank - 1]];
    for (int j = own.rank - 1; j >= 0; j--) {
      const int d = own.axes[j];
      const long count = j + 1 < own.rank ? box.high[d] - box.low[d] : 1;
      at += (box.low[d] + o % count) * sum.strides[d];
      o /= count;
    }
    return memory_[sum.memory] + sum.offset + at * sum.bytes;
  }

  void add_beside(const Sum& sum, const Functions& f, const Box& box, bool direct, long runs,
                  long length) const {
    const Reduce& k = kernel_;
    const int last = k.row.axes[k.row.rank - 1];
    for (long o = 0; o < runs; o++) {
      const char* const x = direct ? direct_run(sum, box, o, 0)
                                   : base_ + sum.terms + o * length * k.pitch * sum.bytes;
      f.beside(base_ + sum.partial, k.pitch, int(k.chains), x, direct ? sum.strides[last] : k.pitch,
               rows_, length, box.low[last]);
    }
  }

  // The terms of the first row of a piece of one run, and the elements to those of the next.
  const char* terms_of(const Sum& sum, const Box& box) const {
    return sum.memory >= 0 ? direct_run(sum, box, 0, 0) : base_ + sum.terms;
  }
  long pitch_of(const Sum& sum) const {
    const Cut& rows = kernel_.rows;
    return sum.memory < 0 ? kernel_.pitch : rows.rank ? sum.strides[rows.axes[rows.rank - 1]] : 0;
  }

  void add_along(const Sum& sum, const Functions& f, const Box& box, long runs, long length) const {
    const Reduce& k = kernel_;
    const bool direct = sum.memory >= 0;
    const int last = k.row.axes[k.row.rank - 1], chains = int(k.chains);
    const long size = sum.bytes, registers = k.across ? length : length / W,
               rest = k.across ? 0 : length % W;
    const int chain = int((k.across ? box.low[last] : box.low[last] / W) % k.chains);
    const long step = direct ? sum.step : W;
    alignas(64) char end[128];
    for (long o = 0; o < runs; o++) {
      const char* x = direct ? direct_run(sum, box, o, 0) : base_ + sum.terms + o * k.run * size;
      char* sums = base_ + sum.partial + group(box, o) * chains * W * size;
      for (long r = 0; r < rows_;
           r++, x += pitch_of(sum) * size, sums += chains * k.groups * W * size) {
        f.add(sums, chains, x, step, registers, chain);
        if (!rest) continue;
        f.clear(end, W);
        __builtin_memcpy(end, x + registers * step * size, rest * size);
        f.add(sums, chains, end, W, 1, int((chain + registers) % chains));
      }
    }
  }

  void add_whole(const Sum& sum, const Functions& f, const Box& box, long length) const {
    f.whole(terms_of(sum, box), pitch_of(sum), sum.memory >= 0 ? sum.step : W, length / W,
            int(kernel_.chains), base_ + sum.results, rows_);
  }

  // The sums that run `o` of a piece is added to, where blocks of lanes take them in turn.
  long group(const Box& box, long o) const {
    const Reduce& k = kernel_;
    if (k.groups == 1) return 0;
    for (int j = k.row.rank - 2; j >= 0; j--) {
      const int d = k.row.axes[j];
      const long blocks = d == k.lane ? k.width : 1;
      const long count = (box.high[d] - box.low[d] + blocks - 1) / blocks;
      if (d == k.lane) return (box.low[d] / blocks + o % count) % k.groups;
      o /= count;
    }
    return 0;
  }

  long aligned_rows() const { return (rows_ + W - 1) / W * W; }
  const Functions& functions(int s) const { return *FUNCTIONS[sums_[s].dtype][sums_[s].combine]; }

  const Reduce& kernel_;
  const Sum* sums_;
  char** memory_;
  char *base_, *columns_ = nullptr;
  long first_row_, rows_;
  bool whole_ = false;  // whether the terms of a piece are all of its rows
};

// Adds the parts of the sums over all rows, in order; of share `chunk` of the elements of a row.
template <class T> void finish_columns(const Reduce& k, const Sum& sum, void* const* arguments,
                                       int chunk) {
  const long extent = k.extents[k.row.axes[k.row.rank - 1]];
  long runs = 1;
  for (int j = 0; j + 1 < k.row.rank; j++) runs *= k.extents[k.row.axes[j]];
  const long all = runs * extent;
  T* const output = (T*)arguments[sum.results];
  for (long e = all * chunk / k.column_chunks; e < all * (chunk + 1) / k.column_chunks; e++) {
    T total = 0;
    for (long p = 0; p < k.column_parts; p++) {
      const T* const own =
          (const T*)((const char*)arguments[k.arguments] + p * k.column_bytes + sum.partial);
      if (k.along) {
        const T x = own[e / extent * k.run + e % extent];
        total = p ? total + x : x;
        continue;
      }
      T lanes[16];
      for (int l = 0; l < 16; l++) lanes[l] = own[e * 16 + l];
      for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
      total += lanes[0];
    }
    output[e] = total;
  }
}
}  // namespace
}  // namespace graphc::reduce

extern "C" void graphc_reduce(void* const* arguments, int phase, int chunk) {
  using namespace graphc::reduce;
  const Reduce& kernel = *(const Reduce*)arguments[-1];
  if (kernel.column_parts) {
    if (phase == 0)
      return Rows(kernel, arguments).play_columns((char*)arguments[kernel.arguments], chunk);
    const Sum* const sums = kernel.array<Sum>(kernel.sums_at);
    for (int s = 0; s < kernel.sums; s++)
      if (sums[s].column)
        (sums[s].dtype ? finish_columns<double> : finish_columns<float>)(kernel, sums[s], arguments,
                                                                         chunk);
    return;
  }
  if (phase != kernel.phase) return;
  const long begin = kernel.blocks * chunk / kernel.chunks,
             end = kernel.blocks * (chunk + 1) / kernel.chunks;
  if (begin == end) return;
  Rows rows(kernel, arguments);
  for (long block = begin; block < end; block++) rows.play(block);
}
