// Attention and its gradients by description: the blocks and steps of attend.h and attend_gradient.h,
// with extents and strides that are known at run time.
#include "prebuilt/attention.h"

#include "prebuilt/scratch.h"

namespace graphc::attend {
namespace {
thread_local Scratch scratch;

class Player {
 public:
  Player(const Description& d, void* const* arguments) : d_(d), arguments_(arguments) {
    if (d.dropout != 0) step_ = *(const int32_t*)address(d.operands[COUNTER]);
  }

  // Units [begin, end): blocks of queries, and behind them blocks of keys.
  void play(long begin, long end) {
    for (long unit = begin; unit < end; unit++) {
      const bool keys = unit >= d_.query_units;
      const long own = keys ? unit - d_.query_units : unit;
      const long extent = keys ? d_.keys : d_.queries,
                 size = (keys ? d_.key_registers : d_.query_registers) * W,
                 blocks = (extent + size - 1) / size, heads = keys ? d_.key_heads : d_.heads;
      n_ = own / blocks / heads;
      const long head = own / blocks % heads, first = own % blocks * size;
      const int count = int((least(size, extent - first) + W - 1) / W);
      if (keys) key_block(head, first, count);
      else {
        choose(head);
        if (d_.forward) forward_block(head, first, count);
        else query_block(head, first, count);
      }
    }
  }

 private:
  char* address(const Operand& x) const {
    return (x.memory == WITHIN ? (char*)&d_ : (char*)arguments_[x.memory]) + x.offset;
  }
  Matrix<const float> matrix(int operand, long head) const {
    const Operand& x = d_.operands[operand];
    return {(const float*)address(x) + n_ * x.n + head * x.head, x.row, x.column};
  }
  Matrix<float> result(int which, long head, long first) const {
    const Operand& x = d_.results[which];
    return {(float*)address(x) + n_ * x.n + head * x.head + first * x.row, x.row, x.column};
  }
  bool wanted(int which) const { return d_.results[which].memory != ABSENT; }

  // The operands of one head of queries.
  void choose(long head) {
    const long key_head = head / (d_.heads / d_.key_heads);
    q_ = matrix(Q, head), k_ = matrix(K, key_head), v_ = matrix(V, key_head);
    const Operand& mask = d_.operands[MASK];
    if (mask.memory != ABSENT)
      mask_ = address(mask) + (n_ * mask.n + head * mask.head) * mask_bytes();
    numbers_ = (n_ * d_.heads + head) * d_.queries;
    if (!d_.forward)
      dy_ = matrix(DY, head), logs_ = matrix(LOGS, head), delta_ = matrix(DELTA, head);
  }
  long mask_bytes() const { return d_.boolean_mask ? 1 : long(sizeof(float)); }

  // Memory for so many rows of a block; `begin` gives it all back.
  void begin(long rows) { free_ = (float*)scratch.at_least(rows * PITCH * long(sizeof(float))); }
  float* rows(long count) {
    float* const found = free_;
    free_ += count * PITCH;
    return found;
  }
  float* zeros(long count) {
    float* const found = rows(count);
    __builtin_memset(found, 0, count * PITCH * sizeof(float));
    return found;
  }

  // Scores as masks leave them: queries from t on and keys from u on.
  void hide(float* x, long rows, int count, long t, long u, bool queries_in_lanes) const {
    const Operand& m = d_.operands[MASK];
    if (mask_)
      mask_scores(x, rows, count, mask_ + (t * m.row + u * m.column) * mask_bytes(),
                  d_.boolean_mask, queries_in_lanes ? m.column : m.row,
                  queries_in_lanes ? m.row : m.column,
                  queries_in_lanes ? d_.queries - t : d_.keys - u);
    if (d_.causal) hide_later(x, rows, count, t, u, queries_in_lanes);
  }
  void keep(float* x, long rows, int count, long t, long u, bool queries_in_lanes) const {
    if (d_.dropout == 0) return;
    const long keys = d_.keys;
    drop(x, rows, count, d_, step_, (numbers_ + t) * keys + u, queries_in_lanes ? 1 : keys,
         queries_in_lanes ? keys : 1);
  }
  void round(float* x, long rows, int count) const {
    if (d_.rounded) round_weights(x, rows, count, d_.rounded);
  }

  // Streams the keys past a block of queries: step(u, rows, registers, first register).
  template <class Step> INLINE void each_key_step(long t, int count, const Step& step) const {
    const long end = d_.causal ? least(d_.keys, t + count * W) : d_.keys;
    for (long u = 0; u < end; u += STEP) {
      const int first = d_.causal ? int(most(u - t, 0) / W) : 0;
      step(u, step_places(u, end, d_.keys), count - first, first);
    }
  }

  void forward_block(long head, long t, int count) {
    begin(d_.features + d_.values + STEP + 1);
    float *const q = rows(d_.features), *const weights = rows(STEP), *const o = zeros(d_.values),
                 *const base = rows(1);
    Floats largest[REGISTERS], total[REGISTERS], inverse[REGISTERS];
    const long live = d_.queries - t;
    gather(q_.from(t), live, count, d_.features, float(d_.scale), q);
    for (int v = 0; v < count; v++) largest[v] = splat(-infinity<float>), total[v] = Floats{};
    each_key_step(t, count, [&](long u, long n, int registers, int first) INLINED {
      float* const w = weights + first * W;
      const long from = t + first * W;
      multiply(registers, k_.from(u), n, q + first * W, d_.features, w, nullptr);
      hide(w, n, registers, from, u, true);
      Floats factor[REGISTERS];
      for (int v = 0; v < registers; v++) {
        const Floats before = largest[first + v];
        Floats most = before;
        for (long r = 0; r < n; r++) {
          const Floats x = load(w + r * PITCH + v * W);
          most = select(x > most, x, most);
        }
        const Floats own = select(most == -infinity<float>, Floats{}, most);
        largest[first + v] = most;
        store(base + v * W, own);
        factor[v] = exp(before - own);
      }
      exponentials(w, w, n, registers, base, 0, W);
      for (int v = 0; v < registers; v++) {
        Floats sum{};
        for (long r = 0; r < n; r++) sum += load(w + r * PITCH + v * W);
        total[first + v] = total[first + v] * factor[v] + sum;
      }
      keep(w, n, registers, from, u, true);
      round(w, n, registers);
      multiply(registers, v_.from(u).transposed(), d_.values, w, n, o + first * W, factor);
    });
    for (int v = 0; v < count; v++) {
      const auto nothing = as_mask(total[v] == float(0));
      inverse[v] = select(nothing, Floats{}, float(1) / total[v]);
      if (!wanted(1)) continue;
      const Floats l = select(nothing, splat(infinity<float>), largest[v] + log(total[v]));
      store_places(result(1, head, t).first + v * W, live - v * W, l);
    }
    if (wanted(0)) scatter(o, live, count, d_.values, inverse, result(0, head, t));
  }

  void query_block(long head, long t, int count) {
    begin(2 * d_.features + d_.values + 2 * STEP + 2);
    float *const q = rows(d_.features), *const dy = rows(d_.values), *const weights = rows(STEP),
                 *const dweights = rows(STEP), *const dq = zeros(d_.features),
                 *const logs = rows(1), *const delta = rows(1);
    const long live = d_.queries - t;
    gather(q_.from(t), live, count, d_.features, float(d_.scale), q);
    gather(dy_.from(t), live, count, d_.values, float(1), dy);
    Floats scale[REGISTERS], one[REGISTERS];
    for (int v = 0; v < count; v++) {
      const auto lanes_of = [&](Matrix<const float> x) INLINED {
        return gather_lanes<float>(x.from(t + v * W).first, x.row, live - v * W);
      };
      store(logs + v * W, lanes_of(logs_));
      store(delta + v * W, lanes_of(delta_));
      scale[v] = splat(float(d_.scale)), one[v] = splat(float(1));
    }
    each_key_step(t, count, [&](long u, long n, int registers, int first) INLINED {
      float *const w = weights + first * W, *const dw = dweights + first * W;
      const long from = t + first * W;
      multiply(registers, k_.from(u), n, q + first * W, d_.features, w, nullptr);
      hide(w, n, registers, from, u, true);
      exponentials(w, w, n, registers, logs + first * W, 0, W);
      multiply(registers, v_.from(u), n, dy + first * W, d_.values, dw, nullptr);
      keep(dw, n, registers, from, u, true);
      differentiate(dw, w, n, registers, delta + first * W, 0, W);
      multiply(registers, k_.from(u).transposed(), d_.features, dw, n, dq + first * W, one);
    });
    scatter(dq, live, count, d_.features, scale, result(0, head, t));
  }

  // dw = w * (dw - delta), as it is multiplied.
  void differentiate(float* dw, const float* w, long rows, int count, const float* delta, long down,
                     long across) const {
    for (long r = 0; r < rows; r++)
      for (int v = 0; v < count; v++) {
        const long place = r * PITCH + v * W;
        store(dw + place,
              load(w + place) * (load(dw + place) - load(delta + r * down + v * across)));
      }
    round(dw, rows, count);
  }

  void key_block(long key_head, long u, int count) {
    begin(2 * d_.features + 2 * d_.values + 3 * STEP);
    float *const k = rows(d_.features), *const v = rows(d_.values), *const weights = rows(STEP),
                 *const plain = rows(STEP), *const dweights = rows(STEP),
                 *const dk = zeros(d_.features), *const dv = zeros(d_.values);
    const long group = d_.heads / d_.key_heads, live = d_.keys - u;
    const bool differs = d_.dropout != 0 || d_.rounded;
    Floats scale[REGISTERS], one[REGISTERS];
    for (int i = 0; i < count; i++) scale[i] = splat(float(d_.scale)), one[i] = splat(float(1));
    alignas(64) float logs[STEP * W], delta[STEP * W];
    for (long head = key_head * group; head < (key_head + 1) * group; head++) {
      choose(head);
      if (head == key_head * group) {
        gather(k_.from(u), live, count, d_.features, float(d_.scale), k);
        gather(v_.from(u), live, count, d_.values, float(1), v);
      }
      for (long t = d_.causal ? u / ROWS * ROWS : 0, n; t < d_.queries; t += n) {
        n = least(d_.causal && t < u + count * W ? DIAGONAL : STEP, d_.queries - t);
        const int registers =
            d_.causal ? int(most(1, least(count, (t + n - 1 - u) / W + 1))) : count;
        for (long r = 0; r < n; r++) {
          store(logs + r * W, splat(*logs_.from(t + r).first));
          store(delta + r * W, splat(*delta_.from(t + r).first));
        }
        multiply(registers, q_.from(t), n, k, d_.features, weights, nullptr);
        hide(weights, n, registers, t, u, false);
        float* const w = differs ? plain : weights;
        exponentials(w, weights, n, registers, logs, W, 0);
        if (differs) {
          __builtin_memcpy(weights, w, n * PITCH * sizeof(float));
          keep(weights, n, registers, t, u, false);
          round(weights, n, registers);
        }
        multiply(registers, dy_.from(t).transposed(), d_.values, weights, n, dv, one);
        multiply(registers, dy_.from(t), n, v, d_.values, dweights, nullptr);
        keep(dweights, n, registers, t, u, false);
        differentiate(dweights, w, n, registers, delta, W, 0);
        multiply(registers, q_.from(t).transposed(), d_.features, dweights, n, dk, one);
      }
    }
    if (wanted(1)) scatter(dk, live, count, d_.features, scale, result(1, key_head, u));
    if (wanted(2)) scatter(dv, live, count, d_.values, one, result(2, key_head, u));
  }

  const Description& d_;
  void* const* arguments_;
  int32_t step_ = 0;
  long n_ = 0,
       numbers_ = 0;  // numbers_: rows of the matrix of weights before those of this n and head
  Matrix<const float> q_{}, k_{}, v_{}, dy_{}, logs_{}, delta_{};
  const char* mask_ = nullptr;
  float* free_ = nullptr;
};
}  // namespace
}  // namespace graphc::attend

extern "C" void graphc_attend(void* const* arguments, int, int chunk) {
  using namespace graphc::attend;
  const auto& d = *(const Description*)arguments[-1];
  const long units = d.query_units + d.key_units;
  const long begin = chunk * units / d.chunks, end = (chunk + 1) * units / d.chunks;
  Player(d, arguments).play(begin, end);
}
