// Trigonometric and hyperbolic functions and their inverses, and other bases, of float32: what
// elementary_functions.h begins goes on here. The polynomials of asin and atan are those of Moshier's
// Cephes library.
#pragma once

static const float PI = 3.14159265f, HALF_PI = 1.57079633f, QUARTER_PI = 0.785398163f,
                   LN_2 = 0.693147181f;

GRAPHC_ELEMENTARY F32 OF_F32(tan)(F32 x) { return sin(x) / cos(x); }
// The arc sine of s = |x|, or of sqrt((1 - |x|) / 2) where |x| > 1/2; NaN where |x| > 1.
GRAPHC_ELEMENTARY F32 folded_asin(F32 size) {
  const mask folded = size > 0.5f;
  const F32 z = folded ? (1.f - size) * 0.5f : size * size, s = folded ? sqrt(z) : size;
  const F32 p = horner(z, 4.2163199048e-2f, 2.4181311049e-2f, 4.5470025998e-2f, 7.4953002686e-2f,
                       1.6666752422e-1f);
  return fma(p * z, s, s);
}
GRAPHC_ELEMENTARY F32 OF_F32(asin)(F32 x) {
  const F32 size = abs(x), angle = folded_asin(size);
  return copysign(size > 0.5f ? HALF_PI - angle * 2.f : angle, x);
}
GRAPHC_ELEMENTARY F32 OF_F32(acos)(F32 x) {
  const F32 size = abs(x), angle = folded_asin(size);
  const F32 outer = x < 0.f ? PI - angle * 2.f : angle * 2.f;
  return size > 0.5f ? outer : HALF_PI - copysign(angle, x);
}
GRAPHC_ELEMENTARY F32 OF_F32(atan)(F32 x) {
  const F32 size = abs(x);
  const mask far = size > 2.41421356f, middle = (size > 0.414213562f) & logical_not(far);
  const F32 y = far ? -1.f / size : middle ? (size - 1.f) / (size + 1.f) : size;
  const F32 start = far ? splat(HALF_PI) : middle ? splat(QUARTER_PI) : splat(0.f);
  const F32 z = y * y;
  const F32 p =
      horner(z, 8.05374449538e-2f, -1.38776856032e-1f, 1.99777106478e-1f, -3.33329491539e-1f);
  return copysign(start + fma(p * z, y, y), x);
}
GRAPHC_ELEMENTARY F32 OF_F32(atan2)(F32 y, F32 x) {
  const F32 rise = abs(y), run = abs(x);
  const mask steep = rise > run;
  const F32 low = steep ? run : rise, high = steep ? rise : run;
  const F32 quotient = low == high ? (low == 0.f ? splat(0.f) : splat(1.f)) : low / high;
  F32 angle = atan(quotient);
  angle = steep ? HALF_PI - angle : angle;
  angle = bits(x) < 0 ? PI - angle : angle;
  return ((x != x) | (y != y)) ? splat(__builtin_nanf("")) : copysign(angle, y);
}
GRAPHC_ELEMENTARY F32 OF_F32(hypot)(F32 x, F32 y) {
  const F64 a = to_f64(x), b = to_f64(y);  // their squares do not overflow
  const mask infinite = (abs(x) == __builtin_inff()) | (abs(y) == __builtin_inff());
  return infinite ? splat(__builtin_inff()) : to_f32(sqrt(a * a + b * b));
}

GRAPHC_ELEMENTARY F32 OF_F32(sinh)(F32 x) {
  const F32 size = abs(x), e = expm1(size), root = exp(size * 0.5f);
  return copysign(size > 80.f ? root * 0.5f * root : (e + e / (e + 1.f)) * 0.5f, x);
}
GRAPHC_ELEMENTARY F32 OF_F32(cosh)(F32 x) {
  const F32 size = abs(x), e = exp(size), root = exp(size * 0.5f);
  return size > 80.f ? root * 0.5f * root : e * 0.5f + 0.5f / e;
}
GRAPHC_ELEMENTARY F32 OF_F32(asinh)(F32 x) {
  const F32 size = abs(x), square = size * size;
  const F32 near = log1p(size + square / (sqrt(square + 1.f) + 1.f));
  return copysign(size > 1e9f ? log(size) + LN_2 : near, x);
}
GRAPHC_ELEMENTARY F32 OF_F32(acosh)(F32 x) {
  const F32 above = x - 1.f, near = log1p(above + sqrt(above * (above + 2.f)));
  return x < 1.f ? splat(__builtin_nanf("")) : x > 1e9f ? log(x) + LN_2 : near;
}
GRAPHC_ELEMENTARY F32 OF_F32(atanh)(F32 x) {
  const F32 size = abs(x);
  return copysign(log1p(size * 2.f / (1.f - size)) * 0.5f, x);
}

GRAPHC_ELEMENTARY F32 OF_F32(exp2)(F32 x) { return exp2_wide(to_f64(x)); }
GRAPHC_ELEMENTARY F32 scaled_log2(F32 x, double factor) {
  F32 result = to_f32(log2_wide(x) * factor);
  result = x == __builtin_inff() ? x : result;
  result = x == 0.f ? splat(-__builtin_inff()) : result;
  return ((x < 0.f) | (x != x)) ? splat(__builtin_nanf("")) : result;
}
GRAPHC_ELEMENTARY F32 OF_F32(log2)(F32 x) { return scaled_log2(x, 1.0); }
GRAPHC_ELEMENTARY F32 OF_F32(log10)(F32 x) { return scaled_log2(x, 0.30102999566398120); }
