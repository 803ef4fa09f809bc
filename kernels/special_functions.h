// Special functions in double precision, in one text for the registers of the CPU, the scalars of a
// GPU and plain C: D is a register of doubles or one double. For float32 they are rounded once at the
// end, so they are within 1 unit of the last place; in float64 the error is about 1e-14 of the result
// (of 1 near a root, of x^2 where e^(x^2) is a factor). NaN, infinities, poles and signs of zero match
// PyTorch.
//
// Whoever includes this defines GRAPHC_SPECIAL, the qualifiers of a function, and exp, log, sqrt, abs, floor and copysign of D, and
// select(condition, a, b): no class of registers can have `condition ? a : b`. In C also D, polynomial and chebyshev.
//
// Chebyshev coefficients: interpolation at 40 to 60 nodes with 40 digits. erfcx: the argument of Shepherd and Laframboise, Math.
// Comp. 36 (1981). Normal quantiles: Wichura, Algorithm AS 241, Applied Statistics 37 (1988). Gamma functions: Stirling's and
// Euler-Maclaurin's series behind a few steps of the recurrence.
#pragma once

#if defined(__cplusplus)
#define GRAPHC_OF_D template <class D> GRAPHC_SPECIAL D
#define GRAPHC_NUMBER(c) (D{} + (c))
namespace graphc {
// The polynomial with these coefficients, that of the highest power first.
template <class D> GRAPHC_SPECIAL D horner(D, D sum) { return sum; }
template <class D, class... Rest> GRAPHC_SPECIAL D horner(D x, D sum, double c, Rest... rest) {
  return horner(x, sum * x + c, rest...);
}
template <class D, class... Rest> GRAPHC_SPECIAL D polynomial(D x, double c, Rest... rest) {
  return horner(x, D{} + c, rest...);
}

// Sum of c_k T_k(t) by Clenshaw's recurrence, coefficients from the highest to c_0; `twice` is 2 t.
template <class D> GRAPHC_SPECIAL D clenshaw(D twice, D b1, D b2, double c) {
  return (twice * b1 * 0.5 - b2) + c;
}
template <class D, class... Rest> GRAPHC_SPECIAL D clenshaw(D twice, D b1, D b2, double c,
                                                            Rest... rest) {
  return clenshaw(twice, twice * b1 - b2 + c, b1, rest...);
}
template <class D, class... Rest> GRAPHC_SPECIAL D chebyshev(D t, Rest... rest) {
  return clenshaw(t * 2.0, D{}, D{}, rest...);
}
#else
#define GRAPHC_OF_D GRAPHC_SPECIAL D
#define GRAPHC_NUMBER(c) (c)
#endif

// e^(x^2) erfc(x) for x >= 0
GRAPHC_OF_D erfcx_above_zero(D x) {
  const D t = 1.0 - 7.5 / (x + 3.75);
  return chebyshev(t, 5.068148904796374e-17, 7.418235256624271e-17, -1.2507950530688638e-15,
                   -1.864562880419314e-15, 3.347811948286805e-14, 3.2525481481487395e-14,
                   -9.65469674843344e-13, 1.9455868545777347e-13, 2.86879501093067e-11,
                   -6.318088340886684e-11, -7.754400208831351e-10, 4.521959811218287e-09,
                   1.076499946567091e-08, -2.1886401049234397e-07, 7.74038306619849e-07,
                   4.13902798607301e-06, -6.916973302501207e-05, 0.0004907758365258086,
                   -0.002413163540417608, 0.009074997670705265, -0.026658668435305753,
                   0.05920993999819189, -0.08424913336651792, -0.004590054580646478,
                   2.3551578691348034 * 0.5) /
         (x * 2.0 + 1.0);
}
GRAPHC_OF_D wide_erfcx(D x) {
  const D y = erfcx_above_zero(abs(x));
  return select(x < 0.0, exp(x * x) * 2.0 - y, y);
}
GRAPHC_OF_D wide_erfc(D x) {
  const D size = abs(x), y = erfcx_above_zero(size) * exp(-size * size);
  return select(x < 0.0, 2.0 - y, y);
}

// The normal quantile at p, given q = p - 1/2 and tail = min(p, 1 - p).
GRAPHC_OF_D normal_quantile(D q, D tail) {
  D r = 0.180625 - q * q;
  const D middle =
      q *
      polynomial(r, 2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
                 4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
                 1.3314166789178437745e2, 3.3871328727963666080) /
      polynomial(r, 5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
                 2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
                 4.2313330701600911252e1, 1.0);
  const D s = sqrt(-log(tail));
  r = s - 1.6;
  const D outer =
      polynomial(r, 7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                 1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550,
                 4.63033784615654529590, 1.42343711074968357734) /
      polynomial(r, 1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
                 1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940,
                 2.05319162663775882187, 1.0);
  r = s - 5.0;
  const D far =
      polynomial(r, 2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                 2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580,
                 5.46378491116411436990, 6.65790464350110377720) /
      polynomial(r, 2.04426310338993978564e-15, 1.42151175831644588870e-7,
                 1.84631831751005468180e-5, 7.86869131145613259100e-4, 1.48753612908506148525e-2,
                 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0);
  const D size = select(s > 5.0, far, outer),
          edge = select(tail == 0.0, GRAPHC_NUMBER(__builtin_inf()), size);
  return select(abs(q) <= 0.425, middle, copysign(edge, q));
}
GRAPHC_OF_D wide_ndtri(D p) {
  const D rest = 1.0 - p;
  return normal_quantile(p - 0.5, select(rest < p, rest, p));
}
GRAPHC_OF_D wide_erfinv(D x) {
  return normal_quantile(x * 0.5, (1.0 - abs(x)) * 0.5) * 0.70710678118654752;
}

// sin(pi d) and cos(pi d) for |d| <= 1/2.
GRAPHC_OF_D sine_of_pi(D d) {
  const D z = d * d * 9.8696044010893586;
  return d * 3.1415926535897932 *
         polynomial(z, 1.0 / 51090942171709440000.0, -1.0 / 121645100408832000.0,
                    1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0,
                    -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0);
}
GRAPHC_OF_D cosine_of_pi(D d) { return 1.0 - 2.0 * sine_of_pi(d * 0.5) * sine_of_pi(d * 0.5); }

// sin(pi x) / (pi x), 1 at 0; exactly reduced.
GRAPHC_OF_D wide_sinc(D x) {
  const D whole = floor(x + 0.5), sine = sine_of_pi(x - whole),
          odd = whole - floor(whole * 0.5) * 2.0;
  return select(x == 0.0, GRAPHC_NUMBER(1.0),
                select(odd == 1.0, -sine, sine) / (x * 3.1415926535897932));
}

// log |gamma(x)|, with an error of some 1e-14 of 1: for float32 alone.
GRAPHC_OF_D wide_lgamma(D x) {
  const D a = select(x < 0.5, 1.0 - x, x), up = a + 7.0, z = select(a < 7.0, up, a);
  const D steps = a * (a + 1.0) * (a + 2.0) * (a + 3.0) * (a + 4.0) * (a + 5.0) * (a + 6.0),
          product = select(a < 7.0, steps, GRAPHC_NUMBER(1.0));
  const D w = 1.0 / z;
  const D series = w * polynomial(w * w, -3617.0 / 122400, 1.0 / 156, -691.0 / 360360, 1.0 / 1188,
                                  -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12);
  const D value = ((z - 0.5) * log(z) - z) + (series + 0.91893853320467274) - log(product);
  const D mirrored = log(3.1415926535897932 / abs(sine_of_pi(x - floor(x + 0.5)))) - value,
          result = select(x < 0.5, mirrored, value);
  return select(abs(x) == __builtin_inf(), abs(x),
                select((x == 1.0) | (x == 2.0), GRAPHC_NUMBER(0.0), result));
}

// The derivative of lgamma.
GRAPHC_OF_D wide_digamma(D x) {
  const D a = select(x < 0.0, 1.0 - x, x), up = a + 7.0, z = select(a < 7.0, up, a);
  const D w = 1.0 / z, square = w * w;
  const D series = square * polynomial(square, -3617.0 / 8160, 1.0 / 12, -691.0 / 32760, 1.0 / 132,
                                       -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12);
  D steps = GRAPHC_NUMBER(0.0);
  for (int k = 6; k >= 1; k--) steps += 1.0 / (a + (double)k);
  steps += 1.0 / a;  // of the sign of a zero
  const D value = log(z) - w * 0.5 - series - select(a < 7.0, steps, GRAPHC_NUMBER(0.0));
  const D d = x - floor(x + 0.5),
          mirrored = value - 3.1415926535897932 * cosine_of_pi(d) / sine_of_pi(d);
  return select(x < 0.0, select(d == 0.0, GRAPHC_NUMBER(__builtin_nan("")), mirrored), value);
}

// The derivative of digamma of order N > 0; for N > 1 NaN below 0.
GRAPHC_OF_D wide_polygamma(int n, D x) {
  const double bernoulli[] = {1.0 / 6,  -1.0 / 30,     1.0 / 42, -1.0 / 30,
                              5.0 / 66, -691.0 / 2730, 7.0 / 6,  -3617.0 / 510};
  const int more = 9 + n;
  const D a = n == 1 ? select(x < 0.5, 1.0 - x, x) : x, inverse = 1.0 / (a + (double)more);
  D power = inverse;
  double factorial = 1.0;
  for (int k = 1; k < n; k++) power *= inverse, factorial *= k + 1;
  D sum = power * (1.0 / n) + power * inverse * 0.5;
  double factor = 1.0;  // (n + 1) ... (n + 2 j - 1) / (2 j)!
  D high = power * inverse;
  for (int j = 1; j <= 8; j++) {
    factor = j == 1 ? (n + 1) / 2.0
                    : factor * (n + 2 * j - 2) * (n + 2 * j - 1) / ((2 * j - 1) * (2.0 * j));
    high = j == 1 ? high * inverse : high * inverse * inverse;
    sum += high * (bernoulli[j - 1] * factor);
  }
  for (int k = more - 1; k >= 0; k--) {
    const D one = 1.0 / (a + (double)k);
    D term = one;
    for (int i = 0; i < n; i++) term *= one;
    sum += term;
  }
  const D value = sum * (n % 2 ? factorial : -factorial);
  if (n > 1) {
    return select(x < 0.0, GRAPHC_NUMBER(__builtin_nan("")), value);
  } else {
    const D sine = sine_of_pi(x - floor(x + 0.5));
    return select(x < 0.5, 9.8696044010893586 / (sine * sine) - value, value);
  }
}

// e^-|x| times the modified Bessel functions of the first kind of orders 0 and 1.
GRAPHC_OF_D wide_i0e(D x) {
  const D size = abs(x), t = size * 0.25 - 1.0, u = 16.0 / size - 1.0;
  const D near = chebyshev(
      t, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
      -1.1685332877993451e-14, 7.676185498604936e-14, -4.856446783111929e-13, 2.95505266312964e-12,
      -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10, 2.6598237246823866e-09,
      -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
      -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05,
      0.00018850288509584165, -0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576,
      0.010546460394594998, -0.02373741480589947, 0.04930528423967071, -0.09490109704804764,
      0.17162090152220877, -0.3046826723431984, 0.6767952744094761 * 0.5);
  const D far = chebyshev(u, 4.465621420302078e-17, 3.461222867695658e-17, -2.827623980516646e-16,
                          -3.425485619677142e-16, 1.7725601330565245e-15, 3.811680669352621e-15,
                          -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14,
                          3.8527783827421426e-13, 7.180124451383666e-13, -1.7941785315068062e-12,
                          -1.3215811840447713e-11, -3.1499165279632416e-11, 1.1889147107846439e-11,
                          4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08,
                          2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05,
                          0.0033691164782556943, 0.8044904110141088 * 0.5) /
                sqrt(size);
  return select(size > 8.0, far, near);
}
GRAPHC_OF_D wide_i1e(D x) {
  const D size = abs(x), t = size * 0.25 - 1.0, u = 16.0 / size - 1.0;
  const D near =
      size * chebyshev(t, -2.111421214358166e-17, 1.5536319577362005e-16, -1.1055969477353862e-15,
                       7.600684294735408e-15, -5.042185504727912e-14, 3.223793365945575e-13,
                       -1.9839743977649436e-12, 1.1736186298890901e-11, -6.663489723502027e-11,
                       3.625590281552117e-10, -1.8872497517228294e-09, 9.381537386495773e-09,
                       -4.445059128796328e-08, 2.0032947535521353e-07, -8.568720264695455e-07,
                       3.4702513081376785e-06, -1.3273163656039436e-05, 4.781565107550054e-05,
                       -0.00016176081582589674, 0.0005122859561685758, -0.0015135724506312532,
                       0.004156422944312888, -0.010564084894626197, 0.024726449030626516,
                       -0.05294598120809499, 0.1026436586898471, -0.17641651835783406,
                       0.25258718644363365 * 0.5);
  const D far =
      chebyshev(u, -4.6503053684947827e-17, -3.209525921991637e-17, 2.9626289976460157e-16,
                3.30820231092085e-16, -1.8803547755107805e-15, -3.814403072437007e-15,
                1.0420276984128802e-14, 4.2724400167119517e-14, -2.1015418427726643e-14,
                -4.0835511110921974e-13, -7.198551776245908e-13, 2.0356285441470896e-12,
                1.4125807436613782e-11, 3.2526035830154884e-11, -1.8974958123505413e-11,
                -5.589743462196584e-10, -3.835380385964237e-09, -2.6314688468895196e-08,
                -2.512236237870209e-07, -3.882564808877691e-06, -0.00011058893876262371,
                -0.009761097491361469, 0.7785762350182801 * 0.5) /
      sqrt(size);
  return copysign(select(size > 8.0, far, near), x);
}

#undef GRAPHC_OF_D
#undef GRAPHC_NUMBER
// F(name) for each wide_name of one argument that all targets have by this name.
#define GRAPHC_EACH_SPECIAL(F) F(erfc) F(erfcx) F(erfinv) F(ndtri) F(digamma) F(i0e) F(i1e) F(sinc)
#if defined(__cplusplus)
}  // namespace graphc
#endif
