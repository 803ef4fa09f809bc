// phases.h: the state of barriers that count bytes (mbarrier) and of bulk copies: the phase of each
// barrier, what each warp knows of other warps and of phases, and which copies read each line of
// shared memory.
//
// A warp has a number that grows when it arrives at a barrier. Who waits for a phase knows from then
// on what those knew who arrived in it. So it knows that products of a warp have ended if it knows
// the number that the warp had when it had waited for them.
#pragma once
#include <algorithm>
#include <cstdint>

namespace graphc_sim {

constexpr unsigned most_in_cluster = 8, most_warps = 32, most_phases = 32;

struct Known {
  std::uint32_t warps[most_in_cluster * most_warps] = {};
  std::uint32_t phases[most_in_cluster * most_phases] = {};  // that have ended, of each barrier

  void join(const Known& other) {
    for (unsigned i = 0; i < std::size(warps); i++) warps[i] = std::max(warps[i], other.warps[i]);
    for (unsigned i = 0; i < std::size(phases); i++)
      phases[i] = std::max(phases[i], other.phases[i]);
  }
};

// A barrier at a place in shared memory. Its phase ends when no arrivals and no bytes are missing;
// bytes may come before they are said to.
struct PhaseBarrier {
  std::uintptr_t offset;
  unsigned number;  // its place in Known::phases
  unsigned arrivals, missing;
  long bytes = 0;
  std::uint32_t phase = 0;
  bool fenced = false, known = false, known_to_all = false;  // to the block, to its cluster
  Known joining, ended;  // of those that have arrived in this phase, and in the one before
};

constexpr std::uintptr_t line_bytes = 128;
constexpr std::uint32_t under_way = ~0u;

// A line of shared memory: of each warp the number with which it knows that its products no longer
// read it; and the barrier and the phase of the bulk copy that has written it, if one has.
struct Line {
  std::uint32_t readers[most_warps] = {};
  int barrier = -1;
  std::uint32_t phase = 0;
};

}  // namespace graphc_sim
