// Roots of secular equations: 1 + sum over j of z_j^2 / (d_j^2 - x^2) = 0, with 0 = d_0 < d_1 < ... Root i is between d_i and
// d_(i + 1); the last one is beyond all d. The reference is graphc/ops/linear/secular.py, which says where the method is from.
#pragma once
#include "reflections.h"

namespace graphc::factors {
// For one root; three to six are usual.
constexpr int MOST_STEPS = 80;
// After so many, every other step halves the interval.
constexpr int QUICK_STEPS = 9;
template <class T> constexpr T epsilon =
    sizeof(T) == 4 ? T(1.1920928955078125e-7) : T(2.220446049250313e-16);

template <int N> struct Number {
  static constexpr int value = N;
};

// A place within an interval beside 0, about its half or that of the logarithms.
template <class T> GRAPHC_FACTORS T between(T low, T high) {
  const T least = high > 0 ? low : -high, most = high > 0 ? high : -low;
  const T middle = least * 4 < most ? root(least) * root(most) : (least + most) / 2;
  const T found = least == 0 ? most / 1024 : middle;
  return high > 0 ? found : -found;
}

// A step of the method from the value at a place. `own` and `rest` are d^2 - x^2 of the pole of the origin and of that beside it,
// `whole` the difference of these, base d of the origin; sign is -1 if the origin is the upper neighbour, else 1.
template <class T>
GRAPHC_FACTORS T stepped(T value, T weight, T slope, T own, T rest, T whole, T base, T sign) {
  const T constant = (value - weight / own) - slope / rest;
  const T c = sign * constant, first = sign * (weight / whole);
  const T both = sign * (constant + (weight + slope) / whole);
  const T size = root(magnitude(both * both - 4 * (c * first)));
  const T numerator = both < 0 ? both - size : 2 * first;
  const T denominator = both < 0 ? 2 * c : both + size;
  const T step = whole * (numerator / denominator);
  return step / (base + root(base * base + step));
}

// Roots begin to begin + G - 1, those of k - 1 where there are fewer, of the k poles d with z, whose squares have the sum `total`:
// origins[i], the number of the nearer pole, and offsets[i] from it. G roots are computed together, each by itself; flags are 1 and 0,
// and conditions select, so that compilers put all of them into registers.
template <int G, class T>
GRAPHC_FACTORS void find_roots(long k, const T* d, const T* z, T total, long begin, int* origins,
                               T* offsets) {
  T number[G], base[G], beside[G], whole[G], pole[G], offset[G], low[G], high[G], value[G], sign[G];
  T weight[G], slope[G], before[G], own[G], rest[G], half[G], size[G], below[G], above[G], alone[G];
  T farther[G], split[G], active[G];
  const T last = total / (d[k - 1] + root(d[k - 1] * d[k - 1] + total));
  if (k == 1) {
    origins[0] = 0, offsets[0] = last;
    return;
  }
  for (int l = 0; l < G; l++) {
    const long i = least_of(begin + l, k - 1);
    number[l] = T(i);
    base[l] = d[i];
    half[l] = i < k - 1 ? (d[least_of(i + 1, k - 1)] - d[i]) / 2 : last;
    value[l] = 1;
  }
  GRAPHC_ROLLED for (long j = 0; j < k; j++) {
    const T dj = d[j], zj = z[j];
    for (int l = 0; l < G; l++)
      value[l] += zj * (zj / (((dj - base[l]) - half[l]) * ((dj + base[l]) + half[l])));
  }
  for (int l = 0; l < G; l++) {
    const long i = least_of(begin + l, k - 1);
    const bool is_last = i == k - 1, at_end = value[l] < 0 && !is_last;
    const long origin = i + at_end;
    const long other = is_last ? k - 2 : at_end ? i : i + 1;
    farther[l] = T(origin > other);
    sign[l] = at_end ? T(-1) : T(1);
    pole[l] = T(origin);
    base[l] = d[origin];
    beside[l] = d[other];
    whole[l] = (beside[l] - base[l]) * (beside[l] + base[l]);
    offset[l] = at_end ? -half[l] : half[l];
    low[l] = at_end ? -half[l] : T(0);
    high[l] = at_end ? T(0) : is_last ? last + last : half[l];
    alone[l] = weight[l] = z[origin] * z[origin];
    slope[l] = z[other] * z[other];
    before[l] = split[l] = 0;
    active[l] = 1;
    own[l] = (0 - offset[l]) * ((base[l] + base[l]) + offset[l]);
    rest[l] = ((beside[l] - base[l]) - offset[l]) * ((beside[l] + base[l]) + offset[l]);
  }
  for (int step = 0; step < MOST_STEPS; step++) {
    const T halves = T(step >= QUICK_STEPS && step % 2);
    for (int l = 0; l < G; l++) {
      const T halved = between(low[l], high[l]);
      const T found =
          stepped(value[l], weight[l], slope[l], own[l], rest[l], whole[l], base[l], sign[l]);
      T next = found > low[l] ? found : halved;
      next = found < high[l] ? next : halved;
      next = halves > 0 ? halved : next;
      T inside = next > low[l] ? active[l] : T(0);
      inside = next < high[l] ? inside : T(0);
      active[l] = inside;
      offset[l] = inside > 0 ? next : offset[l];
    }
    int last_active = G - 1;
    while (last_active >= 0 && active[last_active] == 0) last_active--;
    if (last_active < 0) break;
    for (int l = 0; l < G; l++) {
      own[l] = (0 - offset[l]) * ((base[l] + base[l]) + offset[l]);
      rest[l] = ((beside[l] - base[l]) - offset[l]) * ((beside[l] + base[l]) + offset[l]);
      value[l] = size[l] = 1;
      below[l] = above[l] = 0;
    }
    GRAPHC_ROLLED for (long j = 0; j < k; j++) {
      const T dj = d[j], zj = z[j], place = T(j);
      for (int l = 0; l < G; l++) {
        const T t = zj / (((dj - base[l]) - offset[l]) * ((dj + base[l]) + offset[l]));
        const T term = zj * t, part = t * rest[l];
        value[l] += term;
        size[l] += magnitude(term);
        const T square = place != pole[l] ? part * part : T(0);
        const T side = place <= number[l] ? T(1) : T(0);
        below[l] += square * side;
        above[l] += square * (1 - side);
      }
    }
    for (int l = 0; l < G; l++) {
      const T near = farther[l] * above[l] + (1 - farther[l]) * below[l];
      const T far = farther[l] * below[l] + (1 - farther[l]) * above[l];
      active[l] = magnitude(value[l]) <= 8 * epsilon<T> * size[l] ? T(0) : active[l];
      low[l] = value[l] < 0 ? offset[l] : low[l];
      high[l] = value[l] < 0 ? high[l] : offset[l];
      const T slow = 10 * magnitude(value[l]) > magnitude(before[l]) ? T(1) : T(0);
      const T changes = value[l] * before[l] > 0 ? slow : T(0);
      split[l] += changes * (1 - 2 * split[l]);
      before[l] = value[l];
      const T ratio = own[l] / rest[l], moved = near * (ratio * ratio);
      weight[l] = alone[l] + split[l] * moved;
      slope[l] = far + (1 - split[l]) * near;
    }
  }
  for (int l = 0; l < G && begin + l < k; l++) {
    origins[begin + l] = int(pole[l]);
    offsets[begin + l] = offset[l];
  }
}

// Elements begin to begin + G - 1 of the z of which these roots are those to the last bit, with the signs of z.
template <int G, class T>
GRAPHC_FACTORS void find_z(long k, const T* d, const T* z, const int* origins, const T* offsets,
                           long begin, T* found) {
  T own[G], place[G], product[G];
  for (int l = 0; l < G; l++) {
    own[l] = d[least_of(begin + l, k - 1)];
    place[l] = T(begin + l);
    product[l] = 1;
  }
  GRAPHC_ROLLED for (long i = 0; i + 1 < k; i++) {
    const T base = d[origins[i]], offset = offsets[i], number = T(i), low = d[i], high = d[i + 1];
    for (int l = 0; l < G; l++) {
      const T x = ((base - own[l]) + offset) * ((base + own[l]) + offset);
      const T pole = number < place[l] ? low : high;
      product[l] *= x / ((pole - own[l]) * (pole + own[l]));
    }
  }
  const T base = d[origins[k - 1]], offset = offsets[k - 1];
  for (int l = 0; l < G; l++) product[l] *= ((base - own[l]) + offset) * ((base + own[l]) + offset);
  for (int l = 0; l < G && begin + l < k; l++) {
    const T size = root(magnitude(product[l]));
    found[begin + l] = z[begin + l] < 0 ? -size : size;
  }
}

// Columns begin to begin + G - 1 of found [k][pitch]: the singular vectors, LEFT or right ones, of the matrix with the row z and below
// it the diagonal d, that belong to these roots.
template <int G, bool LEFT, class T>
GRAPHC_FACTORS void find_vectors(long k, const T* d, const T* z, const int* origins,
                                 const T* offsets, long begin, T* found, long pitch) {
  T base[G], offset[G], nearest[G], lengths[G];
  for (int l = 0; l < G; l++) {
    const long i = least_of(begin + l, k - 1);
    base[l] = d[origins[i]];
    offset[l] = offsets[i];
    nearest[l] = magnitude(offset[l]) * ((base[l] + base[l]) + offset[l]);
    lengths[l] = 0;
  }
  GRAPHC_ROLLED for (long j = 0; j < k; j++) {
    T* const row = found + j * pitch + begin;
    for (int l = 0; l < G; l++) {
      const T gap = ((d[j] - base[l]) - offset[l]) * ((d[j] + base[l]) + offset[l]);
      const T x = !LEFT ? z[j] * (nearest[l] / gap) : j ? d[j] * (z[j] / gap) : T(-1);
      row[l] = x;
      lengths[l] += x * x;
    }
  }
  for (int l = 0; l < G; l++) lengths[l] = root(lengths[l]);
  GRAPHC_ROLLED for (long j = 0; j < k; j++) for (int l = 0; l < G; l++)
      found[j * pitch + begin + l] /= lengths[l];
}
}  // namespace graphc::factors
