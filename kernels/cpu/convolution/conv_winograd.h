// conv_winograd: 3 x 3 convolutions of stride 1 and their data gradients, channels in the lanes, by
// Winograd's F(m x m, 3 x 3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
// 2016). A tile of m x m outputs sees E x E inputs, E = m + 2, and
//
//   y = A^T [ sum over c of (G w G^T) * (B^T x B) ] A
//
// takes E^2 products for each channel where the direct sum takes 9 m^2. Every transform adds whole
// registers, since its elements are pixels and taps, and channels lie in lanes.
//
// Phase 0 transforms the weight into the workspace: U[K / W][E^2][C][W]. In phase 1 a unit is a
// group of GROUP tiles with a part of the registers of k. It transforms the group's inputs,
// V[E^2][C / W][GROUP][W]; then for each NV registers of k it multiplies, M[E^2][GROUP][NV][W], by
// register tiles of MR tiles, and transforms M into outputs that go through the epilogue. V and M lie
// on the stack, so that each thread has them in its own second-level cache. Slices of U, V and M are
// a register further apart than they are long: else all E^2 would meet in one set of a cache.
#pragma once
#include "cpu/contract/contract_loops.h"

namespace graphc::winograd {

// The transforms along one axis: E inputs, 3 taps or E sums, `step` registers apart.
template <int M> struct Transform;
template <> struct Transform<2> {
  static constexpr int E = 4;
  template <class T> static INLINE void input(const T* d, T* to, int step) {
    to[0] = d[0] - d[2 * step];
    to[step] = d[step] + d[2 * step];
    to[2 * step] = d[2 * step] - d[step];
    to[3 * step] = d[step] - d[3 * step];
  }
  template <class T> static INLINE void weight(const T* g, T* to, int from, int step) {
    const T ends = 0.5f * (g[0] + g[2 * from]), middle = 0.5f * g[from];
    to[0] = g[0];
    to[step] = ends + middle;
    to[2 * step] = ends - middle;
    to[3 * step] = g[2 * from];
  }
  template <class T> static INLINE void output(const T* m, T* to, int from, int step) {
    to[0] = m[0] + m[from] + m[2 * from];
    to[step] = m[from] - m[2 * from] - m[3 * from];
  }
};
// With the points 0, A, -A, B, -B and infinity. All constants but those of the weight are exact, and
// magnitudes grow to 564 times what they were at most, where the usual points 1 and 2 have 2304.
template <> struct Transform<4> {
  static constexpr int E = 6;
  static constexpr float A = 0.625f, B = 1.5f, AA = A * A, BB = B * B;
  template <class T> static INLINE void input(const T* d, T* to, int step) {
    const T even = fma(-BB, d[2 * step], d[4 * step]), odd = A * fma(-BB, d[step], d[3 * step]);
    const T far_even = fma(-AA, d[2 * step], d[4 * step]);
    const T far_odd = B * fma(-AA, d[step], d[3 * step]);
    to[0] = fma(AA * BB, d[0], fma(-(AA + BB), d[2 * step], d[4 * step]));
    to[step] = even + odd;
    to[2 * step] = even - odd;
    to[3 * step] = far_even + far_odd;
    to[4 * step] = far_even - far_odd;
    to[5 * step] = fma(AA * BB, d[step], fma(-(AA + BB), d[3 * step], d[5 * step]));
  }
  template <class T> static INLINE void weight(const T* g, T* to, int from, int step) {
    constexpr float near = 1 / (2 * AA * (AA - BB)), far = 1 / (2 * BB * (BB - AA));
    const T even = fma(AA, g[2 * from], g[0]), odd = A * g[from];
    const T far_even = fma(BB, g[2 * from], g[0]), far_odd = B * g[from];
    to[0] = 1 / (AA * BB) * g[0];
    to[step] = near * (even + odd);
    to[2 * step] = near * (even - odd);
    to[3 * step] = far * (far_even + far_odd);
    to[4 * step] = far * (far_even - far_odd);
    to[5 * step] = g[2 * from];
  }
  template <class T> static INLINE void output(const T* m, T* to, int from, int step) {
    const T near = m[from] + m[2 * from], of_near = m[from] - m[2 * from];
    const T far = m[3 * from] + m[4 * from], of_far = m[3 * from] - m[4 * from];
    to[0] = m[0] + near + far;
    to[step] = fma(B, of_far, A * of_near);
    to[2 * step] = fma(BB, far, AA * near);
    to[3 * step] = fma(A * AA, of_near, fma(B * BB, of_far, m[5 * from]));
  }
};

template <class S>
struct Convolution {
  using T = Transform<S::M>;
  static constexpr int M = S::M, E = T::E, EE = E * E, NV = S::NV, GROUP = S::GROUP;
  static constexpr long U_SLICE = (S::C + 1) * W, U_K = EE * U_SLICE;
  static constexpr long V_SLICE = S::C * GROUP + W, M_SLICE = GROUP * NV * W + W;
  static constexpr int ACROSS = (S::Q + M - 1) / M, DOWN = (S::P + M - 1) / M;
  static constexpr long TILES = long(S::N) * DOWN * ACROSS;

  // The registers of k and channels numbered `begin` to `end`: G w G^T.
  static void transform_weight(const float* w, float* u, long begin, long end) {
    for (long unit = begin; unit < end; unit++) {
      const long k = unit / S::C, c = unit % S::C;
      const float* from = w + S::W_0 + k * S::W_K + c * S::W_C;
      vec<float> taps[9], half[3 * E], whole[EE];
#pragma GCC unroll 9
      for (int t = 0; t < 9; t++) taps[t] = load(from + t / 3 * S::W_R + t % 3 * S::W_S);
#pragma GCC unroll 3
      for (int s = 0; s < 3; s++) T::weight(taps + s, half + s, 3, 3);
#pragma GCC unroll 6
      for (int i = 0; i < E; i++) T::weight(half + 3 * i, whole + E * i, 1, 1);
#pragma GCC unroll 36
      for (int e = 0; e < EE; e++) store(u + k * U_K + e * U_SLICE + c * W, whole[e]);
    }
  }
  // B^T x B of one tile and one register of channels; pixels outside of the image are zeros.
  template <bool INSIDE>
  static INLINE void transform_tile(const float* x, float* v, long h, long w) {
    vec<float> half[EE];
#pragma GCC unroll 6
    for (int j = 0; j < E; j++) {
      vec<float> d[E];
#pragma GCC unroll 6
      for (int i = 0; i < E; i++) {
        const bool there = INSIDE || (h + i >= 0 && h + i < S::H && w + j >= 0 && w + j < S::WIDTH);
        d[i] = there ? load(x + ((h + i) * S::WIDTH + w + j) * W) : vec<float>{};
      }
      vec<float> t[E];
      T::input(d, t, 1);
#pragma GCC unroll 6
      for (int i = 0; i < E; i++) half[i * E + j] = t[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < E; i++) {
      vec<float> t[E];
      T::input(half + i * E, t, 1);
#pragma GCC unroll 6
      for (int j = 0; j < E; j++) store(v + (i * E + j) * V_SLICE, t[j]);
    }
  }
  static void transform_input(const float* x, float* v, long first) {
    for (int t = 0; t < GROUP; t++) {
      const long tile = first + t;
      if (tile >= TILES) {
        for (int e = 0; e < EE; e++)
          for (long b = 0; b < S::C / W; b++)
            store(v + e * V_SLICE + (b * GROUP + t) * W, vec<float>{});
        continue;
      }
      const long n = tile / (DOWN * ACROSS);
      const long h = tile / ACROSS % DOWN * M + S::TOP, w = tile % ACROSS * M + S::LEFT;
      const bool inside = h >= 0 && w >= 0 && h + E <= S::H && w + E <= S::WIDTH;
      for (long b = 0; b < S::C / W; b++) {
        const float* from = x + (n * (S::C / W) + b) * S::H * S::WIDTH * W;
        if (inside) transform_tile<true>(from, v + (b * GROUP + t) * W, h, w);
        else transform_tile<false>(from, v + (b * GROUP + t) * W, h, w);
      }
    }
  }
  // One of the E^2 products: ROWS tiles by COUNT registers of k, summed over all channels.
  template <int ROWS, int COUNT>
  static __attribute__((noinline)) void product(const float* v, const float* u, float* m) {
    vec<float> sums[ROWS][COUNT];
#pragma GCC unroll 32
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
      for (int j = 0; j < COUNT; j++) sums[i][j] = vec<float>{};
#pragma GCC unroll 1
    for (long b = 0; b < S::C / W; b++) {
#pragma GCC unroll 4
      for (int c = 0; c < W; c++) {
        vec<float> weights[COUNT];
#pragma GCC unroll 8
        for (int j = 0; j < COUNT; j++) {
          weights[j] = load(u + c * W + j * U_K);
          pin(weights[j]);
        }
#pragma GCC unroll 32
        for (int i = 0; i < ROWS; i++) {
          vec<float> one = splat(v[i * W + c]);
          pin(one);
#pragma GCC unroll 8
          for (int j = 0; j < COUNT; j++) sums[i][j] = fma(one, weights[j], sums[i][j]);
        }
      }
      v += GROUP * W, u += W * W;
    }
#pragma GCC unroll 32
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
      for (int j = 0; j < COUNT; j++) store(m + (i * COUNT + j) * W, sums[i][j]);
  }
  template <int COUNT, class Epilogue>
  static void transform_output(const float* m, long first, long k, const Epilogue& epilogue) {
    const long last = least(TILES - first, GROUP);
    for (long t = 0; t < last; t++) {
      const long tile = first + t, n = tile / (DOWN * ACROSS);
      const long p = tile / ACROSS % DOWN * M, q = tile % ACROSS * M;
      for (int j = 0; j < COUNT; j++) {
        vec<float> half[M * E], whole[M * M];
#pragma GCC unroll 6
        for (int s = 0; s < E; s++) {
          vec<float> sums[E];
#pragma GCC unroll 6
          for (int i = 0; i < E; i++)
            sums[i] = load(m + (i * E + s) * M_SLICE + (t * COUNT + j) * W);
          T::output(sums, half + s, 1, E);
        }
#pragma GCC unroll 4
        for (int i = 0; i < M; i++) T::output(half + i * E, whole + i * M, 1, 1);
        const long rows = least(S::P - p, M), columns = least(S::Q - q, M);
#pragma GCC unroll 1
        for (long i = 0; i < rows; i++)
#pragma GCC unroll 1
          for (long s = 0; s < columns; s++)
            epilogue.template operator()<W>(whole[i * M + s], n, (k + j) * W, p + i, q + s);
      }
    }
  }
  template <int COUNT, class Epilogue>
  static void columns(const float* v, const float* u, float* m, long first, long k,
                      const Epilogue& epilogue) {
    constexpr int rest = GROUP % S::MR;
    for (int e = 0; e < EE; e++) {
      const float *inputs = v + e * V_SLICE, *weights = u + k * U_K + e * U_SLICE;
      float* to = m + e * M_SLICE;
      for (int t = 0; t + S::MR <= GROUP; t += S::MR)
        product<S::MR, COUNT>(inputs + t * W, weights, to + t * COUNT * W);
      if constexpr (rest != 0)
        product<rest, COUNT>(inputs + (GROUP - rest) * W, weights, to + (GROUP - rest) * COUNT * W);
    }
    transform_output<COUNT>(m, first, k, epilogue);
  }
  template <class Epilogue>
  static void run(const float* x, const float* u, long begin, long end, const Epilogue& epilogue) {
    alignas(64) float v[EE * V_SLICE], m[EE * M_SLICE];
    constexpr long registers = S::K / W, tiles = (registers + NV - 1) / NV;
    for (long unit = begin; unit < end; unit++) {
      const long first = unit / S::PARTS * GROUP, part = unit % S::PARTS;
      transform_input(x, v, first);
      const long last = (part + 1) * tiles / S::PARTS;
      for (long k = part * tiles / S::PARTS; k < last; k++) {
        if constexpr (registers % NV != 0) {
          if (k + 1 == tiles) {
            columns<registers % NV>(v, u, m, first, k * NV, epilogue);
            continue;
          }
        }
        columns<NV>(v, u, m, first, k * NV, epilogue);
      }
    }
  }
};

}  // namespace graphc::winograd
