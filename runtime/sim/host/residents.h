// residents.h: blocks that wait for others, each with its shared memory and the knowledge about it.
// One at a time is in place, where it can run; blocks of a cluster reach each other's memory.
#pragma once
#include <vector>

#include "check.h"

namespace graphc_sim {

struct Resident {
  Block block;
  std::uint32_t serial = 0;
  std::vector<char> memory;
  std::vector<Cell> cells;

  // To and from where blocks run.
  void exchange() {
    std::swap(block, launch.block);
    std::swap(serial, launch.block_serial);
    if (cells.size() < shadow.shared.size()) cells.resize(shadow.shared.size());
    std::swap(cells, shadow.shared);
  }
};

// The blocks of the cluster that runs, and which of them is in place.
struct Cluster {
  std::vector<Resident>* blocks = nullptr;  // nullptr: the one in place, which is alone
  unsigned in_place = 0;
  bool any_in_place = false;
  unsigned arrived = 0;  // threads at the barrier of the cluster, and how often all have passed it
  std::uint32_t turn = 0;
  Known joining, known;

  unsigned size() const { return blocks ? static_cast<unsigned>(blocks->size()) : 1; }
};
inline Cluster cluster;

inline char* shared_start() { return reinterpret_cast<char*>(launch.module.shared.start); }

// A block of the cluster, wherever it is.
struct Member {
  Block& block;
  char* memory;  // nullptr: the block has not begun
  std::vector<Cell>& cells;
  std::uint32_t serial;
};
inline Member member(unsigned rank) {
  if (!cluster.blocks || (cluster.any_in_place && cluster.in_place == rank))
    return {launch.block, shared_start(), shadow.shared, launch.block_serial};
  Resident& one = (*cluster.blocks)[rank];
  return {one.block, one.memory.empty() ? nullptr : one.memory.data(), one.cells, one.serial};
}

inline Known& known_to(const Thread& thread) { return launch.block.warps[thread.warp()].known; }
// The place of a warp of block `rank` in Known::warps.
inline unsigned place_of(unsigned rank, unsigned warp) { return rank * most_warps + warp; }

}  // namespace graphc_sim
