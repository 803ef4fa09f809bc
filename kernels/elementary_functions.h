// Elementary functions of float32, in one text for the registers of the CPU and for plain C: an F32
// is a register of floats or one float. Polynomials and exponent arithmetic, with errors of a few
// units in the last place over the whole range, and NaN, infinities, zeros and denormals by IEEE.
//
// Whoever includes this defines the types F32, I32, U32, F64, I64, U64 and mask, which a comparison of F32 gives;
// GRAPHC_ELEMENTARY, the qualifiers of a function; OF_F32(name), how a function is called that exists for doubles too; the functions
// abs, copysign, floor, sqrt, fma, horner, bits, from_bits, splat, select, logical_not, to_f32, to_f64, to_i32 and to_i64; and
//
//   power_of_two(n)     2^n for n in [-126, 127]
//   scale(p, n)         p * 2^n for n in [-252, 254]
//   clamp(x, low, high) x within bounds; a NaN stays
//   subtract(a, b)      a - b, integers that wrap
//   masked(m, n)        n where the mask holds, else 0
//   sines_beyond(...)   the sine or cosine in double precision where a mask says so
#pragma once

// The integer nearest to x / ln 2, for |x| < 2^21: the product is rounded once.
GRAPHC_ELEMENTARY F32 nearest_of_ln2(F32 x) {
  return fma(1.44269504f, x, splat(12582912.f)) - 12582912.f;
}
// r with x = n ln 2 + r and |r| <= ln 2 / 2, given n = nearest_of_ln2(x).
GRAPHC_ELEMENTARY F32 rest_of_ln2(F32 x, F32 n) {
  return fma(2.12194440e-4f, n, fma(-0.693359375f, n, x));
}
// (e^r - 1 - r) / r^2
GRAPHC_ELEMENTARY F32 exp_tail(F32 r) {
  return horner(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                1.6666665459e-1f, 5.0000001201e-1f);
}
GRAPHC_ELEMENTARY F32 exp_within(F32 x) {  // of x in [-104, 89]
  const F32 n = nearest_of_ln2(x), r = rest_of_ln2(x, n);
  return scale(fma(fma(exp_tail(r), r, splat(1.f)), r, splat(1.f)), n);
}
GRAPHC_ELEMENTARY F32 OF_F32(exp)(F32 x) { return exp_within(clamp(x, -104.f, 89.f)); }
GRAPHC_ELEMENTARY F32 OF_F32(expm1)(F32 x) {
  x = clamp(x, -20.f, 89.f);
  const F32 n = nearest_of_ln2(x), r = rest_of_ln2(x, n);
  const F32 small = fma(exp_tail(r) * r, r, r);
  const F32 half = power_of_two(subtract(to_i32(n), 1));  // half, as 2^128 is out of range
  return copysign(n == 0.f ? small : fma(small, half, half - 0.5f) * 2.f, x);
}

GRAPHC_ELEMENTARY F32 OF_F32(log)(F32 x) {
  const mask denormal = x < 1.17549435e-38f;
  const F32 y = denormal ? x * 8388608.f : x;
  // y = m 2^e with m in [sqrt(1/2), sqrt(2))
  const I32 raised = subtract(bits(y), 0x3f3504f3);
  const F32 e = to_f32((raised >> 23) - masked(denormal, 23));
  const F32 m = from_bits((raised & 0x7fffff) + 0x3f3504f3) - 1.f;
  const F32 z = m * m;
  const F32 p = horner(m, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f,
                       1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f,
                       3.3333331174e-1f);
  F32 result = fma(-2.12194440e-4f, e, p * m * z);
  result = fma(0.693359375f, e, m + fma(-0.5f, z, result));
  result = x == __builtin_inff() ? x : result;
  result = x == 0.f ? splat(-__builtin_inff()) : result;
  return ((x < 0.f) | (x != x)) ? splat(__builtin_nanf("")) : result;
}
GRAPHC_ELEMENTARY F32 OF_F32(log1p)(F32 x) {
  const F32 u = x + 1.f;
  const F32 result = log(u) + (x - (u - 1.f)) / u;  // what rounding took from u
  const mask plain = (u == 0.f) | (u == __builtin_inff());
  return u == 1.f ? x : plain ? log(u) : result;
}

// A rational approximation, odd in x, within 5.3 units in the last place, that never exceeds 1 and reaches it at the clamp. Fitted
// for the least relative error with p(0) = q(0), so that small x need no care.
GRAPHC_ELEMENTARY F32 OF_F32(tanh)(F32 x) {
  const F32 y = clamp(x, -8.2759f, 8.2759f), z = y * y;
  const F32 p = horner(z, 2.08959777e-11f, -1.37908076e-08f, 9.59940371e-06f, 2.95684603e-03f,
                       1.29527256e-01f, 1.f);
  const F32 q = horner(z, 2.33103725e-04f, 2.39106584e-02f, 4.62860376e-01f, 1.f);
  return y * (p / q);
}
GRAPHC_ELEMENTARY F32 OF_F32(sigmoid)(F32 x) {
  const F32 e = exp_within(clamp(x, -104.f, 88.f));  // a greater e would overflow
  return e / (1.f + e);
}
GRAPHC_ELEMENTARY F32 OF_F32(erf)(F32 x) {  // the same; 1 from where it rounds to it
  const F32 y = clamp(x, -3.8325069f, 3.8325069f), z = y * y;
  const F32 p = horner(z, 2.1237322e-06f, 2.8619796e-04f, 3.6580483e-03f, 5.2433021e-02f,
                       1.8741608e-01f, 1.1283791e+00f);
  const F32 q = horner(z, 3.8918573e-05f, 1.1432960e-03f, 1.4752088e-02f, 1.1294568e-01f,
                       4.9942580e-01f, 1.f);
  return abs(x) > 3.8325069f ? copysign(splat(1.f), x) : y * (p / q);
}

// sin (phase 0) or cos (phase 1). The reduction by pi / 2 is done in double precision.
GRAPHC_ELEMENTARY F32 sine(F32 x, int phase) {
  const F64 wide = to_f64(x);
  const F64 n = fma(0.63661977236758134, wide, splat(6755399441055744.0)) - 6755399441055744.0;
  const F32 r = to_f32(fma(-6.123233995736766e-17, n, fma(-1.5707963267948966, n, wide)));
  const U32 quadrant = (U32)to_i32(n) + (uint32_t)phase;
  const F32 z = r * r;
  const F32 odd = fma(horner(z, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f) * z, r, r);
  const F32 even =
      fma(horner(z, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f) * z, z,
          z * -0.5f) +
      1.f;
  F32 result = (quadrant & 1u) != 0u ? even : odd;
  result = from_bits(bits(result) ^ (I32)((quadrant & 2u) << 30));
  result = sines_beyond(logical_not(abs(x) < 1073741824.f), x, phase, result);
  return phase == 0 ? (x == 0.f ? x : result) : result;
}
GRAPHC_ELEMENTARY F32 OF_F32(sin)(F32 x) { return sine(x, 0); }
GRAPHC_ELEMENTARY F32 OF_F32(cos)(F32 x) { return sine(x, 1); }

// x^y = 2^(y log2 x) in double precision, whose 53 bits leave a float's 24 whole for any exponent that does not overflow.
GRAPHC_ELEMENTARY F64 log2_wide(F32 x) {  // positive and finite, denormals too: exact as doubles
  const I64 raised = subtract(bits(to_f64(x)), 0x3fe6a09e667f3bcd);
  const F64 e = to_f64(raised >> 52);
  const F64 m = from_bits((raised & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
  const F64 s = (m - 1.0) / (m + 1.0), z = s * s;  // log m = 2 atanh s, |s| < 0.172
  const F64 p =
      horner(z, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
  return fma(2.8853900817779268, fma(p * z, s, s), e);
}
GRAPHC_ELEMENTARY F32 exp2_wide(F64 x) {
  x = select(x < -160.0, splat(-160.0), x);
  x = select(x > 130.0, splat(130.0), x);
  const F64 n = (x + 6755399441055744.0) - 6755399441055744.0;
  const F64 r = (x - n) * 0.69314718055994531;
  F64 p = horner(r, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5);
  p = fma(p * r, r, r) + 1.0;
  return to_f32(p * from_bits((I64)(((U64)to_i64(n) + 1023) << 52)));
}
GRAPHC_ELEMENTARY F32 OF_F32(pow)(F32 x, F32 y) {
  const float infinity = __builtin_inff();
  const F32 size = abs(x), half = y * 0.5f;
  const mask whole = (floor(y) == y) & (abs(y) < infinity);
  const mask odd = whole & (floor(half) != half);
  F32 result = exp2_wide(to_f64(y) * log2_wide(size));
  const mask vanishes = (size == 0.f) | (size == infinity);
  result = vanishes ? ((size == 0.f) == (y < 0.f) ? splat(infinity) : splat(0.f)) : result;
  const F32 limit = (size > 1.f) == (y > 0.f) ? splat(infinity) : splat(0.f);
  result = abs(y) == infinity ? (size == 1.f ? splat(1.f) : limit) : result;
  const mask negative = bits(x) < 0;
  result = (negative & odd) ? -result : result;
  const mask undefined = (x < 0.f) & logical_not(whole) & (size < infinity) & (abs(y) < infinity);
  result = undefined ? splat(__builtin_nanf("")) : result;
  result = ((x != x) | (y != y)) ? splat(__builtin_nanf("")) : result;
  return ((x == 1.f) | (y == 0.f)) ? splat(1.f) : result;
}
