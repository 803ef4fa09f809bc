// matrices.h: warp-wide operations for tensor cores, ldmatrix and mma.sync, with the fragments that
// the PTX ISA assigns to each lane. Lane l is in row l / 4 at position l % 4.
//
//   c[16][8], floats         c[i]: row l / 4 + i / 2 * 8, column l % 4 * 2 + i % 2
//   a[16][16], two bytes     register i: row l / 4 + i % 2 * 8, columns l % 4 * 2 + i / 2 * 8 and + 1
//   b[16][8], two bytes      register i: rows l % 4 * 2 + i * 8 and + 1, column l / 4
//   a[16][8], tf32           register i: row l / 4 + i % 2 * 8, column l % 4 + i / 2 * 4
//   b[8][8], tf32            register i: row l % 4 + i * 4, column l / 4
//
// Of two elements in a register the first has the lower bits. A product of two operands is exact in
// float32; they are added with k ascending, each sum rounded to nearest, where hardware adds several
// at once and cuts off what lies below the largest.
#pragma once
#include "threads.h"

namespace graphc_sim {

struct Rows {
  std::uint32_t* to;
  const unsigned short* row;
  bool turned;
};

// Four matrices of 8 x 8 elements of two bytes in shared memory: lane l names row l % 8, of 16 bytes,
// of matrix l / 8. Register j of a lane gets two neighbours of matrix j: of row l / 4, or if `turned`
// of column l / 4.
inline void load_matrices(std::uint32_t* to, const void* row, bool turned, const char* file,
                          int line, void* pc) {
  const auto address = reinterpret_cast<std::uintptr_t>(row);
  check_aligned(address, 16, "loads a row of", pc);
  if (!launch.module.shared.contains(address)) fail(pc, "loads a matrix from what is not shared");
  if (launch.request.check) check_access({address, 16, false, false, pc});
  Rows mine{to, static_cast<const unsigned short*>(row), turned};
  const auto finish = [](const Meeting& meeting) {
    const auto at = [&](unsigned lane) { return static_cast<Rows*>(meeting.payloads[lane]); };
    each_lane(meeting.mask, [&](unsigned lane) {
      const unsigned g = lane / 4, t = lane % 4 * 2;
      for (unsigned j = 0; j < 4; j++) {
        const auto element = [&](unsigned r, unsigned c) {
          return std::uint32_t{at(j * 8 + r)->row[c]};
        };
        at(lane)->to[j] = at(lane)->turned ? element(t, g) | element(t + 1, g) << 16
                                           : element(g, t) | element(g, t + 1) << 16;
      }
    });
  };
  meet(at_matrices, ~0u, &mine, file, line, finish);
}

enum Element { of_half, of_bfloat, of_tf32 };

inline float as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float half_as_float(std::uint32_t bits) {
  const std::uint32_t size = bits & 0x7fff, sign = (bits & 0x8000) << 16;
  const float small = static_cast<float>(size) * 0x1p-24f;
  if (size < 0x400) return sign ? -small : small;
  return as_float(sign | ((size << 13) + (112u << 23)) | (size < 0x7c00 ? 0 : 0x7f800000u));
}
// Element `which` of a register; of a tf32 the 13 low bits do not count.
inline float element_of(Element kind, std::uint32_t word, int which) {
  if (kind == of_tf32) return as_float(word & ~0x1fffu);
  const std::uint32_t bits = word >> 16 * which & 0xffff;
  return kind == of_half ? half_as_float(bits) : as_float(bits << 16);
}

struct Fragments {
  Element kind;
  float* sum;
  const std::uint32_t *a, *b;
};

// c += a b for one warp.
inline void multiply_matrices(Element kind, float* sum, const std::uint32_t* a,
                              const std::uint32_t* b, const char* file, int line) {
  Fragments mine{kind, sum, a, b};
  const auto finish = [](const Meeting& meeting) {
    const auto at = [&](int lane) { return static_cast<Fragments*>(meeting.payloads[lane]); };
    const Element kind = at(0)->kind;
    const int per = kind == of_tf32 ? 1 : 2, depth = 8 * per;
    float rows[16][16], columns[8][16];
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        for (int e = 0; e < per; e++) {
          const int k = lane % 4 * per + e, g = lane / 4;
          rows[g + i % 2 * 8][k + i / 2 * 4 * per] = element_of(kind, at(lane)->a[i], e);
          if (i < 2) columns[g][k + i * 4 * per] = element_of(kind, at(lane)->b[i], e);
        }
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++) {
        const float* row = rows[lane / 4 + i / 2 * 8];
        const float* column = columns[lane % 4 * 2 + i % 2];
        float& total = at(lane)->sum[i];
        for (int k = 0; k < depth; k++) total += row[k] * column[k];
      }
  };
  meet(at_product, ~0u, &mine, file, line, finish);
}

}  // namespace graphc_sim
