// peers.h: loads from the shared memory of another block of the cluster (ld.shared::cluster).
//
// Threads of two blocks are ordered by barriers of their cluster alone: what is read was written before
// the last of them, and its block may write there again, or end, behind the next.
#pragma once
#include "bulk.h"

namespace graphc_sim {

inline void check_peer_cell(const Member& of, std::uintptr_t i, std::uint8_t mask, void* pc) {
  const Cell& cell = of.cells[i];
  const auto name = [&] {
    return format("byte %lu of the shared memory of block %u", 4 * i, of.block.number);
  };
  if ((cell.valid_in(of.serial) & mask) != mask)
    report(uninitialised, pc, format("reads %s, which nobody has written", name().c_str()));
  if (cell.valid_in(of.serial) && cell.pending & mask)
    report(pending, pc, format("reads %s while a copy into it may be under way", name().c_str()));
  if (cell.written.serial == of.serial && cell.written.bytes & mask &&
      cell.written.epoch >= of.block.cluster_epoch)
    report(race_written, pc,
           format("reads %s, which its thread %u wrote, with no barrier of the cluster between",
                  name().c_str(), cell.written.thread));
}

inline void read_in_cluster(void* to, const void* from, unsigned bytes, unsigned rank, void* pc) {
  const std::uintptr_t offset = shared_offset(from, bytes, "reads in its cluster", pc);
  if (rank >= cluster.size()) fail(pc, format("names block %u, its cluster has none", rank));
  if (rank == launch.block.rank) {
    if (launch.request.check)
      check_access({reinterpret_cast<std::uintptr_t>(from), bytes, false, false, pc});
    std::memcpy(to, from, bytes);
    return;
  }
  if (launch.current->in_cluster)
    fail(pc, "reads in its cluster before it has waited for the barrier at which it arrived");
  const Member of = member(rank);
  if (!of.memory) fail(pc, format("reads what block %u has, which need not have begun", rank));
  if (!of.block.alive)
    fail(pc, format("reads the shared memory of block %u, which has ended", of.block.number));
  if (launch.request.check) {
    Block& owner = of.block;
    if (owner.peer_reads.empty()) owner.peer_reads.resize(launch.module.shared.size / 4 + 2);
    each_cell(offset, bytes, [&](std::uintptr_t i, std::uint8_t mask) {
      check_peer_cell(of, i, mask, pc);
      owner.peer_reads[i] = cluster.turn + 1;
    });
  }
  std::memcpy(to, of.memory + offset, bytes);
}

// A store to bytes that another block has read since the last barrier of the cluster.
inline void check_peer_reads(std::uintptr_t offset, unsigned bytes, void* pc) {
  const std::vector<std::uint32_t>& reads = launch.block.peer_reads;
  if (reads.empty()) return;
  each_cell(offset, bytes, [&](std::uintptr_t i, std::uint8_t) {
    if (reads[i] == cluster.turn + 1)
      report(race_read, pc,
             format("writes byte %lu of shared memory, which another block of the cluster read, "
                    "with no barrier of the cluster between",
                    4 * i));
  });
}

}  // namespace graphc_sim
