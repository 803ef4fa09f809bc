/* The self-test of NAME: calls, and what COMPUTED_BY computed, by graphc MADE_BY. It returns 0 if
   all results are within the tolerance, and if the same calls from the same state give the same bits
   again. */
#include "NAME.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

HELPERS
enum { EXPECTED = EXPECTED_BYTES };
static unsigned char expected[EXPECTED + 1], first[EXPECTED + 1], weights[UPPER_WEIGHTS_BYTES];
static size_t at;       /* the next expected byte */
static int again;       /* whether the calls are made again */
static int results, equal;
static double furthest;
static unsigned checksum; /* of the state after the calls, as it is saved */
MEMORY_OF_CALLS

static int failed(int error) {
  if (error) fprintf(stderr, "NAME: error %d, the driver says %d\n", error, NAME_driver_error());
  return error != 0;
}

/* A float of the kind 4 (float), 8 (double), 2 (half) or 3 (bfloat16). */
static double number(int kind, const unsigned char* bytes) {
  uint16_t half = 0;
  uint32_t word = 0;
  float single;
  double wide;
  if (kind == 8) return memcpy(&wide, bytes, 8), wide;
  if (kind == 4) return memcpy(&single, bytes, 4), single;
  memcpy(&half, bytes, 2);
  if (kind == 3) return word = (uint32_t)half << 16, memcpy(&single, &word, 4), single;
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                     : ldexp(fraction, -24);
  return half >> 15 ? -size : size;
}

/* Whether a result is too far from what is expected, or has other bits than the first time. */
static int differs(int kind, const void* found, size_t bytes, const char* what) {
  const unsigned char *f = found, *e = expected + at;
  const size_t here = at;
  int wrong = 0;
  at += bytes;
  if (again) {
    wrong = memcmp(found, first + here, bytes) != 0;
    if (wrong) printf("%s: other bits than the first time\n", what);
    return wrong;
  }
  memcpy(first + here, found, bytes);
  results++;
  if (!memcmp(f, e, bytes)) return equal++, 0;
  double error = 1, norm = 0, differences = 0;
  if (kind) {
    const size_t size = kind == 3 ? 2 : (size_t)kind;
    for (size_t i = 0; i < bytes; i += size) {
      const double a = number(kind, f + i), b = number(kind, e + i);
      if (a == b || (a != a && b != b)) continue;
      differences += (a - b) * (a - b);
    }
    for (size_t i = 0; i < bytes; i += size) {
      const double b = number(kind, e + i);
      if (b == b && !isinf(b)) norm += b * b;
    }
    error = norm > 0 ? sqrt(differences / norm) : sqrt(differences);
  }
  furthest = error > furthest ? error : furthest;
  wrong = !(error <= TOLERANCE);
  if (wrong) printf("%s: %g from what is expected\n", what, error);
  return wrong;
}

static int read_file(const char* path, unsigned char* bytes, size_t size) {
  FILE* file = fopen(path, "rb");
  const size_t found = file ? fread(bytes, 1, size, file) : 0;
  if (file) fclose(file);
  if (found != size) fprintf(stderr, "cannot read %s\n", path);
  return found == size;
}

/* The results that are wrong; -1 on an error. */
static int calls(void) {
  NAME model;
  int wrong = 0;
  at = 0;
  if (failed(NAME_init(&model, 0, weights, sizeof weights))) return -1;
  for (again = 0; again < 2; again++) {
    at = 0;
    if (again && failed(NAME_restore(&model, weights, sizeof weights))) return -1;
ALL_CALLS
    const unsigned char* saved = NAME_save(&model);
    if (!saved) return failed(1), -1;
    checksum = saved[12] | saved[13] << 8 | saved[14] << 16 | (unsigned)saved[15] << 24;
ALL_STATE
  }
  NAME_close(&model);
  return wrong;
}

int main(int count, char** words) {
  if (!read_file(count > 1 ? words[1] : "NAME.weights", weights, sizeof weights) ||
      !read_file(count > 2 ? words[2] : "NAME.expected", expected, EXPECTED))
    return 2;
  const int wrong = calls();
  if (wrong < 0) return 2;
  printf("%d of %d results have the bits of COMPUTED_BY; the others are %g apart at most\n", equal,
         results, furthest);
  printf("%d results are wrong, or have other bits when they are computed again\n", wrong);
  printf("after %d calls: state %08x\n", NUMBER_OF_CALLS, checksum);
  printf("memory: %d bytes of arena, %d of state, %d of weights\n", UPPER_ARENA_BYTES,
         UPPER_DEVICE_STATE_BYTES, UPPER_WEIGHTS_BYTES);
  return wrong != 0;
}
