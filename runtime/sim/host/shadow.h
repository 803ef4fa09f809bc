// shadow.h: the state of every four bytes of memory: their last writer and readers, which bytes
// have been written, and which the current launch has touched.
//
// Two accesses of different threads, one of them a write, race unless a barrier of the block, or of
// a warp that has both threads, lies between them. No lockstep within a warp is assumed. Threads of
// different blocks are ordered by fences alone (fences.h), or by being atomic both. Of writers the last is kept; of
// readers one, or that there were several of a warp, a block or the grid: as one that writes after
// several is ordered with all of them or races, nothing is lost by that. But of each byte that one
// thread alone has read, that thread is kept: it may write it, as others may the bytes beside it.
#pragma once
#include <cstdint>

namespace graphc_sim {

constexpr std::uint32_t several_blocks = ~0u;
constexpr std::uint16_t several_warps = 0xFFFF, several_of_warp = 0x8000;

// The thread that runs. `serial` tells launches apart, for shared memory the runs of blocks.
struct Actor {
  std::uint32_t serial, block;
  std::uint16_t thread, epoch, warp_epoch;
};

// Accesses of one kind. An epoch counts the barriers that a block, or a warp, has passed.
struct Record {
  std::uint32_t serial = 0, block = 0;
  std::uint16_t thread = 0, epoch = 0, warp_epoch = 0;
  std::uint8_t bytes = 0, lone = 0;  // lone: read by one thread alone, readers[i]
  bool atomic = false;
  std::uint16_t readers[4] = {};

  void set(const Actor& actor, std::uint8_t mask, bool by_atomic) {
    const bool same = serial == actor.serial && block == actor.block && thread == actor.thread &&
                      epoch == actor.epoch && warp_epoch == actor.warp_epoch;
    bytes = same ? bytes | mask : mask;
    serial = actor.serial;
    block = actor.block;
    thread = actor.thread;
    epoch = actor.epoch;
    warp_epoch = actor.warp_epoch;
    atomic = by_atomic;
  }
  void add(const Actor& actor, std::uint8_t mask) {
    add_readers(actor, mask);
    if (serial != actor.serial) return set(actor, mask, false);
    if (block != actor.block) {
      block = several_blocks;
      bytes |= mask;
    } else if (epoch != actor.epoch) {
      set(actor, mask, false);
    } else {
      bytes |= mask;
      if (thread == actor.thread) {
        warp_epoch = actor.warp_epoch;
      } else if (warp() != actor.thread / 32) {
        thread = several_warps;
      } else {
        const bool unordered = warp_epoch == actor.warp_epoch;
        thread = unordered ? static_cast<std::uint16_t>(several_of_warp | warp()) : actor.thread;
        warp_epoch = actor.warp_epoch;
      }
    }
  }
  bool races(const Actor& actor, std::uint8_t mask) const {
    if (serial != actor.serial || !(bytes & mask)) return false;
    if (block != actor.block) return true;
    if (epoch != actor.epoch || thread == actor.thread) return false;
    if (alone(actor, bytes & mask)) return false;
    return warp() != actor.thread / 32 || warp_epoch == actor.warp_epoch;
  }

 private:
  void add_readers(const Actor& actor, std::uint8_t mask) {
    const bool known = serial == actor.serial && block == actor.block && epoch == actor.epoch;
    const unsigned before = known ? bytes : 0;
    lone = known ? lone : 0;
    for (int i = 0; i < 4; i++) {
      if (!(mask >> i & 1)) continue;
      if (!(before >> i & 1)) {
        readers[i] = actor.thread;
        lone |= 1 << i;
      } else if (readers[i] != actor.thread) {
        lone &= ~(1 << i);
      }
    }
  }
  bool alone(const Actor& actor, unsigned mask) const {
    if ((lone & mask) != mask) return false;
    for (int i = 0; i < 4; i++)
      if ((mask >> i & 1) && readers[i] != actor.thread) return false;
    return true;
  }
  int warp() const {
    if (thread == several_warps) return -1;
    return thread & several_of_warp ? thread & ~several_of_warp : thread / 32;
  }
};

// Masks have one bit per byte.
struct Cell {
  Record written, read;
  std::uint32_t valid_serial = 0, touched_serial = 0;
  std::uint8_t valid = 0;    // of the run of the block (shared), or for good (global)
  std::uint8_t pending = 0;  // an asynchronous copy into them has not ended
  std::uint8_t touched_reads = 0, touched_writes = 0;
  std::uint16_t fences = 0;  // for the asynchronous proxy, that its writer had passed

  void touch(std::uint32_t serial, std::uint8_t mask, bool write) {
    if (touched_serial != serial) {
      touched_serial = serial;
      touched_reads = touched_writes = 0;
    }
    (write ? touched_writes : touched_reads) |= mask;
  }
  std::uint8_t valid_in(std::uint32_t serial) const { return valid_serial == serial ? valid : 0; }
  void make_valid(std::uint32_t serial, std::uint8_t mask) {
    valid = valid_in(serial) | mask;
    valid_serial = serial;
  }
};

// Calls body(cell index, mask of the bytes) for the bytes [start, start + count).
template <class Body>
inline void each_cell(std::uintptr_t start, std::uintptr_t count, const Body& body) {
  if (!count) return;
  const std::uintptr_t last = (start + count - 1) / 4;
  for (std::uintptr_t i = start / 4; i <= last; i++) {
    const unsigned low = i == start / 4 ? start % 4 : 0;
    const unsigned high = i == last ? (start + count - 1) % 4 : 3;
    body(i, static_cast<std::uint8_t>((2u << high) - (1u << low)));
  }
}

}  // namespace graphc_sim
