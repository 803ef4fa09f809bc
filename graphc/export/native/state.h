// Blocks of state and constants: a header of 64 bytes, then values. docs/export.md describes it.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace {

constexpr size_t header_bytes = 64;

uint32_t number32(const unsigned char* at) {
  return uint32_t(at[0]) | uint32_t(at[1]) << 8 | uint32_t(at[2]) << 16 | uint32_t(at[3]) << 24;
}

// CRC-32 as zlib computes it, four bits at a time.
uint32_t checksum(const unsigned char* bytes, size_t count) {
  static const uint32_t table[16] = {
      0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
      0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
      0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
  };
  uint32_t sum = 0xffffffff;
  for (size_t i = 0; i < count; i++) {
    sum ^= bytes[i];
    sum = sum >> 4 ^ table[sum & 15];
    sum = sum >> 4 ^ table[sum & 15];
  }
  return ~sum;
}

// Not memcmp, which is a function of the C library.
bool same(const unsigned char* a, const unsigned char* b, int count) {
  unsigned char differ = 0;
  for (int i = 0; i < count; i++) differ |= a[i] ^ b[i];
  return !differ;
}

enum Found { good, too_short, no_block, other_program, damaged };

// Whether `size` bytes begin with an intact block of a kind.
Found examine(const unsigned char* block, size_t size, uint32_t kind, const unsigned char* digest,
              size_t bytes) {
  if (size < bytes) return too_short;
  if (!same(block, (const unsigned char*)"graphc 1", 8) || number32(block + 8) != kind)
    return no_block;
  if (!same(block + 24, digest, 32)) return other_program;
  if (number32(block + 16) != bytes - header_bytes) return damaged;
  if (number32(block + 12) != checksum(block + header_bytes, bytes - header_bytes)) return damaged;
  return good;
}

// Write the checksum of a block into its header.
void seal(unsigned char* block, size_t bytes) {
  const uint32_t sum = checksum(block + header_bytes, bytes - header_bytes);
  for (int i = 0; i < 4; i++) block[12 + i] = (unsigned char)(sum >> 8 * i);
}

}  // namespace
