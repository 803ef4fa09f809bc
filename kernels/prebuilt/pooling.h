// Pooling and its gradients over strips: the sums and comparisons of window.h, with windows that are
// known at run time. Registers go along the fastest axis of a strip.
#pragma once
#include "cpu/shared/elementary.h"
#include "prebuilt/statements.h"

namespace graphc::strips {
// The settings of a window: which function, kernel size, stride, padding, input pixels, output
// pixels; whether an average counts the padding; elements from one row and column to the next of what
// is read, first and second; the kind of an index (index_at).
struct Window {
  int64_t function, dtype, kh, kw, dh, dw, ph, pw, h, w, p, q, pad_counts;
  int64_t row[2], column[2], index_kind;

  bool tiled() const { return kh == dh && kw == dw && !ph && !pw; }
  long first_row(long y) const { return most(y + ph - kh + dh, 0) / dh; }
  long end_row(long y) const { return least((y + ph) / dh + 1, p); }
  long first_column(long x) const { return most(x + pw - kw + dw, 0) / dw; }
  long end_column(long x) const { return least((x + pw) / dw + 1, q); }
  long count(long i, long j) const {
    if (pad_counts || (!ph && !pw)) return kh * kw;
    const long y = i * dh - ph, x = j * dw - pw;
    return (least(y + kh, h) - most(y, 0)) * (least(x + kw, w) - most(x, 0));
  }
  // Calls f(i, j, place) for the windows that hold pixel (y, x), in ascending order.
  template <class F> INLINE void each(long y, long x, const F& f) const {
    const long end_i = end_row(y), first_j = first_column(x), end_j = end_column(x);
    for (long i = first_row(y); i < end_i; i++)
      for (long j = first_j; j < end_j; j++) f(i, j, (y + ph - i * dh) * kw + x + pw - j * dw);
  }
};
enum { MAX_POOL, MAX_POOL_GRAD, AVG_POOL, AVG_POOL_GRAD };

// The first elements of a register's lanes, `step` bytes apart, where they are live.
template <class T> INLINE vec<T> lanes_at(const char* from, long step, long live) {
  vec<T> v{};
  if (step == sizeof(T) && live == W) return graphc::load((const T*)from);
  for (long l = 0; l < live; l++) v[l] = *(const T*)(from + l * step);
  return v;
}
template <class T> INLINE void keep_lanes(T* to, vec<T> v, long live) {
  __builtin_memcpy(to, &v, live * sizeof(T));
}

// A run of elements: addresses and indices of its first, and how they step.
struct Run {
  long at[4], step[4];
  long k, count;
};

// The element of each place of the windows of a register's lanes, and where it exists.
template <class T, class F>
INLINE void each_place(const Window& k, const Run& run, long done, long live, const F& f) {
  const long i = run.at[1] + done * run.step[1], j = run.at[2] + done * run.step[2];
  const long top = i * k.dh - k.ph, left = j * k.dw - k.pw;
  const long down = run.step[1] * k.dh, right = run.step[2] * k.dw;
  const long row = k.row[0] * long(sizeof(T)), column = k.column[0] * long(sizeof(T));
  const long step = run.step[0] + down * row + right * column;
  const long bottom = top + down * (live - 1), end = left + right * (live - 1);
  const bool whole = least(top, bottom) >= 0 && most(top, bottom) + k.kh <= k.h &&
                     least(left, end) >= 0 && most(left, end) + k.kw <= k.w;
  const char* const x = (const char*)(run.at[0] + done * run.step[0]) + top * row + left * column;
  for (long r = 0; r < k.kh; r++)
    for (long s = 0; s < k.kw; s++) {
      const char* const from = x + r * row + s * column;
      if (whole) {
        f(~mask{}, lanes_at<T>(from, step, live), r * k.kw + s);
        continue;
      }
      mask here{};
      vec<T> v{};
      for (long l = 0; l < live; l++) {
        const long y = top + r + l * down, z = left + s + l * right;
        if (y < 0 || y >= k.h || z < 0 || z >= k.w) continue;
        here[l] = -1;
        v[l] = *(const T*)(from + l * step);
      }
      f(here, v, r * k.kw + s);
    }
}

template <class T> void pool(const Window& k, const Run& run, T* y, int32_t* index) {
  for (long done = 0; done < run.count; done += W) {
    const long live = least(W, run.count - done);
    if (k.function == MAX_POOL) {
      vec<T> best = splat<T>(-__builtin_inff());
      vec<int32_t> which{};
      mask none = ~mask{};
      each_place<T>(k, run, done, live, [&](mask here, vec<T> v, long place) {
        const mask better = here & (none | (~as_mask(v <= best) & ~isnan(best)));
        best = select(better, v, best);
        which = select(better, splat<int32_t>(int32_t(place)), which);
        none &= ~here;
      });
      keep_lanes(y + done, best, live);
      keep_lanes(index + done, which, live);
    } else {
      vec<T> total{}, count{};
      each_place<T>(k, run, done, live, [&](mask here, vec<T> v, long) {
        total += v;
        count += select(here, splat<T>(1), vec<T>{});
      });
      keep_lanes(y + done, total / (k.pad_counts ? splat<T>(T(k.kh * k.kw)) : count), live);
    }
  }
}

// The same for the maximum's gradient where windows do not overlap and all lanes share them: a pixel
// beside the one before is in its window or in the next one.
template <class T> class TiledGrad {
 public:
  explicit TiledGrad(const Window& k) : k_(k) {}

  void play(const Run& run, T* dx) {
    const long y = run.at[2], x = run.at[3];
    if (y != y_) y_ = y, i_ = y / k_.dh;
    if (x == x_ + 1) {
      if (++s_ == k_.dw) s_ = 0, j_++;
    } else j_ = x / k_.dw, s_ = x - j_ * k_.dw;
    x_ = x;
    const bool held = i_ < k_.p && j_ < k_.q;
    const int32_t place = int32_t((y - i_ * k_.dh) * k_.kw + s_);
    const T* const dy = (const T*)run.at[0] + i_ * k_.row[0] + j_ * k_.column[0];
    const uint8_t* const named = (const uint8_t*)run.at[1] + i_ * k_.row[1] + j_ * k_.column[1];
    long l = 0;
    for (; l + W <= run.count; l += W) {
      vec<T> own{};
      if (held)
        own += select(as_mask(convert<int32_t>(graphc::load(named + l)) == place),
                      graphc::load(dy + l), own);
      graphc::store(dx + l, own);
    }
    for (; l < run.count; l++) dx[l] = held && named[l] == place ? T(0) + dy[l] : T(0);
  }

  // The same for `pixels` pixels of a row, of `step` elements each: whole registers, or less than one,
  // behind which a register may be written, and read, as blocks of lanes have all of theirs in memory.
  void play_row(const Run& run, long pixels, long step, T* dx) const {
    const long y = run.at[2], i = y / k_.dh;
    long j = run.at[3] / k_.dw, s = run.at[3] - j * k_.dw;
    const long first = (y - i * k_.dh) * k_.kw;
    const T* const dy = (const T*)run.at[0] + i * k_.row[0];
    const uint8_t* const named = (const uint8_t*)run.at[1] + i * k_.row[1];
    for (long x = 0; x < pixels; j++, s = 0) {
      const long count = least(k_.dw - s, pixels - x);
      T* to = dx + x * step;
      x += count;
      if (i >= k_.p || j >= k_.q) {
        __builtin_memset(to, 0, count * step * sizeof(T));
        continue;
      }
      for (long l = 0; l < step; l += W) {
        const vec<T> own = graphc::load(dy + j * k_.column[0] + l);
        const vec<int32_t> which =
            convert<int32_t>(graphc::load(named + j * k_.column[1] + l)) - int32_t(first + s);
        for (int n = 0; n < count; n++)
          graphc::store(to + n * step + l, vec<T>{} + select(as_mask(which == n), own, vec<T>{}));
      }
    }
  }

 private:
  const Window& k_;
  long y_ = -1, x_ = -2, i_ = 0, j_ = 0, s_ = 0;
};

// Of the pixels at[2], at[3] of a maximum (at[1], at[2] of an average) from gradients at[0].
template <class T> void pool_grad(const Window& k, const Run& run, T* dx) {
  const int pixel = k.function == MAX_POOL_GRAD ? 2 : 1;
  const long size = sizeof(T), bytes = k.index_kind == 2 ? 1 : k.index_kind;
  const bool together = !run.step[pixel] && !run.step[pixel + 1];
  const auto share = [&](long i, long j, long place, long done,
                         long live) __attribute__((always_inline)) {
    const char* const from =
        (const char*)(run.at[0] + done * run.step[0]) + (i * k.row[0] + j * k.column[0]) * size;
    const vec<T> dy = lanes_at<T>(from, run.step[0], live);
    if (k.function == AVG_POOL_GRAD) return vec<T>(dy / T(k.count(i, j)));
    const char* const named =
        (const char*)(run.at[1] + done * run.step[1]) + (i * k.row[1] + j * k.column[1]) * bytes;
    mask here{};
    if (bytes == 1 && live == W && run.step[1] == 1)
      here = as_mask(convert<int32_t>(graphc::load((const uint8_t*)named)) == int32_t(place));
    else
      for (long l = 0; l < live; l++)
        here[l] = -int32_t(index_at(named + l * run.step[1], 0, k.index_kind) == place);
    return select(here, dy, vec<T>{});
  };
  for (long done = 0; done < run.count; done += together ? W : 1) {
    const long live = together ? least(W, run.count - done) : 1;
    vec<T> total{};
    k.each(run.at[pixel] + done * run.step[pixel], run.at[pixel + 1] + done * run.step[pixel + 1],
           [&](long i, long j, long place) __attribute__((always_inline)) {
             const vec<T> own = share(i, j, place, done, live);
             total += own;
           });
    keep_lanes(dx + done, total, live);
  }
}

template <class T> void window_of(const State& state, const Step& step) {
  const Window& k = *(const Window*)step.settings;
  const Layout& layout = state.layout;
  const int last = layout.rank - 1, inner = layout.inner;
  T* const y = (T*)state.places[step.result()].at;
  const int32_t second = step.operand(3);
  int32_t* const index = k.function == MAX_POOL ? (int32_t*)state.places[second].at : nullptr;
  Run run{};
  int operands = 0;
  for (; operands < 4 && step.operand(operands) >= 0 && !(operands == 3 && index); operands++) {
    const int a = operands;
    const Lines& own = state.lines[step.operand(a)];
    run.at[a] = own.here;
    run.step[a] = inner <= last ? own.stride[last] : 0;
  }
  TiledGrad<T> grad(k);
  const bool tiled = k.function == MAX_POOL_GRAD && k.tiled() && k.index_kind == 2 &&
                     run.step[0] == sizeof(T) && run.step[1] == 1 && !run.step[2] && !run.step[3];
  const auto play = [&] {
    if (tiled) grad.play(run, y + run.k);
    else if (k.function == MAX_POOL || k.function == AVG_POOL)
      pool<T>(k, run, y + run.k, index + run.k);
    else pool_grad<T>(k, run, y + run.k);
  };
  if (step.uniform) {
    run.count = 1;
    play();
    for (int l = 1; l < W; l++) {
      y[l] = y[0];
      if (index) index[l] = index[0];
    }
    return;
  }
  const long length = layout.extent_in_strip(last);
  const int next = last - 1;  // the axis of neighbouring runs, if there is one in the strip
  const long runs = layout.extent_in_strip(next);
  long indices[AXES] = {}, step_next[4] = {};
  for (int a = 0; a < operands && next >= inner; a++)
    step_next[a] = state.lines[step.operand(a)].stride[next];
  const bool by_rows = tiled && next >= inner && state.n % length == 0 &&
                       (length % W == 0 || (length < W && !step.in_place)) && !step_next[0] &&
                       !step_next[1] && !step_next[2] && step_next[3] == 1;
  for (run.k = 0; run.k < state.n;) {
    if (by_rows) {
      const long pixels = least(runs, (state.n - run.k) / length);
      grad.play_row(run, pixels, length, y + run.k);
      run.k += pixels * length;
    }
    for (long r = 0; r < runs && run.k < state.n && !by_rows; r++, run.k += length) {
      run.count = least(length, state.n - run.k);
      play();
      for (int a = 0; a < 4; a++) run.at[a] += step_next[a];
    }
    for (int a = 0; a < 4 && !by_rows; a++) run.at[a] -= runs * step_next[a];
    for (int d = next - 1; d >= inner; d--) {
      const bool back = ++indices[d] == layout.extent[d];
      for (int a = 0; a < operands; a++) {
        const long stride = state.lines[step.operand(a)].stride[d];
        run.at[a] += back ? stride * (1 - layout.extent[d]) : stride;
      }
      if (!back) break;
      indices[d] = 0;
    }
  }
}
// Operands: what is read, for a maximum's gradient the index of the maximum too, and the pixel's row
// and column; a maximum's fourth one is the place of its index, which it writes.
inline void window(const State& state, const Step& step) {
  if (step.settings[1]) window_of<double>(state, step);
  else window_of<float>(state, step);
}
}  // namespace graphc::strips
