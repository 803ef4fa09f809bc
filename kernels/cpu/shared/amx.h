// AMX tile registers: eight of 16 rows of 64 bytes, or loops that compute the same.
//
// A chunk that multiplies tiles has a TileRegisters: its constructor configures the registers, as
// what ran before it on the thread may have left others, and its destructor releases them, so that
// the system need not save them. All tiles are whole. That the process may use them at all was
// asked for when the target was made.
//
//   multiply<C, A, B>  C += A * B: row i of A holds 32 bf16 of row i of X, row t of B a pair of
//                      bf16 for each of 16 columns of Y, row i of C 16 floats. The even products
//                      are summed from zero and the odd ones, each by fused multiply-adds; then
//                      even and odd together, then that and C, denormals as zeros throughout.
//   multiply_bytes<C, A, B>  the same of bytes, four in the place of a pair: u8 of A, i8 of B, and
//                      32-bit integers of C, exact modulo 2^32.
//
// The loops give the same bits as the instruction, on any CPU: there is one text of the kernels.
#pragma once
#include "cpu/shared/simd.h"

namespace graphc {
constexpr int TILE_ROWS = 16;    // of each register
constexpr long TILE_BYTES = 64;  // of each row

#if defined(__AMX_BF16__) && !defined(GRAPHC_EMULATE_AMX)

class TileRegisters {
 public:
  TileRegisters() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } layout;
    for (int t = 0; t < 8; t++) layout.row_bytes[t] = TILE_BYTES, layout.rows[t] = TILE_ROWS;
    asm volatile("ldtilecfg %0" ::"m"(layout));
  }
  ~TileRegisters() { asm volatile("tilerelease" ::: "memory"); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

  template <int T> INLINE void zero() { asm volatile("tilezero %%tmm%c0" ::"i"(T)); }
  // Rows lie `stride` bytes apart.
  template <int T>
  INLINE void load(const void* from, long stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  INLINE void store(void* to, long stride) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
  }
  template <int C, int A, int B>
  INLINE void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
  template <int C, int A, int B>
  INLINE void multiply_bytes() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
};

#else

class TileRegisters {
 public:
  template <int T> void zero() { __builtin_memset(bytes[T], 0, sizeof bytes[T]); }
  template <int T>
  void load(const void* from, long stride) {
    load(bytes[T], (const char*)from, stride);
  }
  template <int T>
  void store(void* to, long stride) const {
    for (int i = 0; i < TILE_ROWS; i++)
      __builtin_memcpy((char*)to + i * stride, bytes[T][i], TILE_BYTES);
  }
  template <int C, int A, int B>
  void multiply() {
    multiply(bytes[C], bytes[A], bytes[B]);
  }
  template <int C, int A, int B>
  void multiply_bytes() {
    multiply_bytes(bytes[C], bytes[A], bytes[B]);
  }

 private:
  using Tile = char[TILE_ROWS][TILE_BYTES];
  alignas(64) Tile bytes[8] = {};

  static __attribute__((noinline)) void load(Tile& to, const char* from, long stride) {
    for (int i = 0; i < TILE_ROWS; i++) __builtin_memcpy(to[i], from + i * stride, TILE_BYTES);
  }
  static __attribute__((noinline)) void multiply_bytes(Tile& c, const Tile& a, const Tile& b) {
    for (int i = 0; i < TILE_ROWS; i++)
      for (int j = 0; j < TILE_BYTES; j += 4) {
        uint32_t sum;
        __builtin_memcpy(&sum, c[i] + j, 4);
        for (int t = 0; t < TILE_ROWS; t++)
          for (int e = 0; e < 4; e++) sum += uint8_t(a[i][4 * t + e]) * int8_t(b[t][j + e]);
        __builtin_memcpy(c[i] + j, &sum, 4);
      }
  }
  // A float of these bits; a denormal counts as zero.
  static INLINE float flushed(uint32_t bits) {
    return __builtin_bit_cast(float, (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits);
  }
  static INLINE float flushed(float x) { return flushed(__builtin_bit_cast(uint32_t, x)); }
  static __attribute__((noinline)) void multiply(Tile& c, const Tile& a, const Tile& b) {
    constexpr int columns = TILE_BYTES / 4;
    uint32_t x[TILE_ROWS][columns], y[TILE_ROWS][columns];
    float sums[TILE_ROWS][columns];
    __builtin_memcpy(x, a, sizeof x);
    __builtin_memcpy(y, b, sizeof y);
    __builtin_memcpy(sums, c, sizeof sums);
    for (int i = 0; i < TILE_ROWS; i++) {
      float even[columns] = {}, odd[columns] = {};
      for (int t = 0; t < TILE_ROWS; t++) {
        const float lower = flushed(x[i][t] << 16), upper = flushed(x[i][t] & 0xffff0000);
        for (int j = 0; j < columns; j++) {
          even[j] = flushed(__builtin_fmaf(lower, flushed(y[t][j] << 16), even[j]));
          odd[j] = flushed(__builtin_fmaf(upper, flushed(y[t][j] & 0xffff0000), odd[j]));
        }
      }
      for (int j = 0; j < columns; j++)
        sums[i][j] = flushed(flushed(sums[i][j]) + flushed(even[j] + odd[j]));
    }
    __builtin_memcpy(c, sums, sizeof sums);
  }
};

#endif
}  // namespace graphc
