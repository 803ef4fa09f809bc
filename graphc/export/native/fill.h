// What the self-test of an export fills inputs with.
#ifdef __GNUC__
#define UNUSED __attribute__((unused))
#else
#define UNUSED
#endif

UNUSED static void copy(void* to, const void* from, size_t count) {
  for (size_t i = 0; i < count; i++) ((unsigned char*)to)[i] = ((const unsigned char*)from)[i];
}

/* Element i of the input of this number, 32 bits. */
static uint32_t hashed(uint32_t input, size_t i) {
  uint32_t h = (uint32_t)i + input * 0x9e3779b9u;
  h = (h ^ h >> 16) * 0x85ebca6bu;
  h = (h ^ h >> 13) * 0xc2b2ae35u;
  return h ^ h >> 16;
}

#define FILL(name, type, value)                                                      \
  UNUSED static void fill_##name(type* to, size_t count, uint32_t input) {           \
    for (size_t i = 0; i < count; i++) {                                             \
      const uint32_t h = hashed(input, i);                                           \
      to[i] = (type)(value);                                                         \
    }                                                                                \
  }
FILL(floats, float, (float)((int32_t)(h >> 8) - 8388608) * 1.1920928955078125e-7f)
FILL(doubles, double, (double)((int32_t)(h >> 8) - 8388608) * 1.1920928955078125e-7)
FILL(halves, uint16_t, h << 31 >> 16 | 0x3c00 | h >> 22)
FILL(bfloats, uint16_t, h << 31 >> 16 | 0x3f80 | h >> 25)
FILL(bits8, uint8_t, h & 1)
FILL(bits32, int32_t, h & 1)
FILL(bits64, int64_t, h & 1)
