// grid.h: how the blocks of a launch run: one after another; those of a cluster in turns, until each
// waits; those of a cooperative launch until all wait for each other.
#pragma once
#include <cstring>
#include <list>
#include <numeric>

#include "warp_groups.h"

// Kernels read them.
extern "C" __attribute__((visibility("default"))) graphc_sim::Index3 threadIdx, blockIdx, blockDim,
    gridDim;
graphc_sim::Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace graphc_sim {

inline void run_thread() {
  launch.request.entry(launch.request.packed);
  Thread& thread = *launch.current;
  Block& block = launch.block;
  if (!thread.copies.empty()) wait_copies(0, nullptr);
  if (!thread.held.empty()) fail(nullptr, "ends while products of its warp group are under way");
  for (const Barrier& barrier : {block.whole, block.part})
    if (barrier.arrived && thread.number < barrier.count)
      fail(nullptr, format("ends while %u threads of its block wait at %s:%d", barrier.arrived,
                           barrier.file, barrier.line));
  Warp& warp = block.warps[thread.warp()];
  for (const Meeting& meeting : warp.meetings)
    if (meeting.mask >> thread.lane() & 1)
      fail(nullptr, format("ends while lanes 0x%x of its warp wait for it at %s:%d",
                           meeting.arrived, meeting.file, meeting.line));
  thread.state = State::ended;
  warp.ended |= 1u << thread.lane();
  block.alive--;
  stacks.give(thread.stack);
  wait();
}

inline void resume(Thread& thread) {
  if (thread.state == State::fresh) {
    thread.stack = stacks.take();
    thread.stack_pointer = first_frame(thread.stack, run_thread);
  }
  thread.state = State::ready;
  launch.current = &thread;
  threadIdx = thread.place;
  graphc_sim_switch(&launch.scheduler, thread.stack_pointer);
  launch.current = nullptr;
}

// Of the room for dynamic memory, which is large, only what the launch asks for is used.
inline std::size_t shared_bytes() {
  const char* dynamic = launch.request.dynamic;
  if (!dynamic) return launch.module.shared.size;
  return static_cast<std::size_t>(dynamic - shared_start()) + launch.request.shared_bytes;
}

// Ends what copies have not: those of a launch that failed, or of a group that was never closed.
inline void drop_copies() {
  for (Thread& thread : launch.block.threads) {
    for (const Copy& copy : thread.copies)
      if (launch.request.check) set_pending(copy, false);
    thread.copies.clear();
  }
}

inline void start_block(std::uint32_t i) {
  const Index3 grid = launch.request.grid;
  const Index3 place{i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y};
  launch.block_serial = ++launch.blocks_started;
  launch.block.start(place, i, cluster.in_place, launch.request.block, launch.order(),
                     launch.random);
  if (launch.request.check) launch.block.lines.assign(shared_bytes() / line_bytes + 1, {});
  std::memset(shared_start(), 0xFF, shared_bytes());
}

inline void check_ended() {
  if (launch.failed || !launch.block.alive) return;
  report(0, nullptr, "a block cannot go on: " + launch.block.whereabouts());
  launch.failed = true;
}

// Lets the threads of the block run until they have ended, or wait for those of other blocks.
inline void run_block() {
  Block& block = launch.block;
  blockIdx = block.index;
  do {
    while (!block.ready.empty() && !launch.failed) {
      Thread& thread = block.threads[block.ready.front()];
      block.ready.pop_front();
      resume(thread);
    }
  } while (!launch.failed && !cluster.blocks && land_copy());
  if (block.at_word() && !launch.failed) return;
  if (!cluster.blocks && !block.at_grid) check_ended();
  if (!block.at_grid && (launch.failed || !block.alive)) drop_copies();
}

// The numbers of the blocks in the order in which they run.
inline std::vector<std::uint32_t> block_order() {
  const Index3 grid = launch.request.grid;
  std::vector<std::uint32_t> numbers(std::uint64_t{grid.x} * grid.y * grid.z);
  std::iota(numbers.begin(), numbers.end(), 0u);
  if (launch.order() == Order::backward) std::reverse(numbers.begin(), numbers.end());
  if (launch.order() == Order::shuffled)
    std::shuffle(numbers.begin(), numbers.end(), launch.random);
  return numbers;
}

// Puts the block that is in place aside.
inline void put_aside(Resident& resident) {
  resident.memory.resize(shared_bytes() + 1);  // never empty
  std::memcpy(resident.memory.data(), shared_start(), resident.memory.size() - 1);
  resident.exchange();
}

// Lets the resident block of this number run.
inline void run_resident(Resident& resident, std::uint32_t number) {
  const bool begins = resident.memory.empty();
  resident.exchange();
  cluster.any_in_place = true;
  if (begins) start_block(number);
  else std::memcpy(shared_start(), resident.memory.data(), resident.memory.size() - 1);
  run_block();
  cluster.any_in_place = false;
  put_aside(resident);
}

// All blocks have come to a barrier, or ended; false if that is not so, which is reported.
inline bool met(const std::vector<Resident>& residents) {
  const Block* first = nullptr;
  std::size_t ended = 0;
  for (const Resident& resident : residents) {
    const Block& block = resident.block;
    const Barrier& barrier = block.whole;
    if (!block.at_grid) {
      ended++;
      continue;
    }
    if (!first) first = &block;
    const Barrier& other = first->whole;
    if (barrier.line == other.line && !std::strcmp(barrier.file, other.file)) continue;
    report(0, nullptr,
           format("cannot go on: block %u waits for all blocks at %s:%d, block %u at %s:%d",
                  first->number, other.file, other.line, block.number, barrier.file, barrier.line));
    return false;
  }
  if (!first || !ended) return true;
  report(0, nullptr,
         format("cannot go on: block %u waits for all blocks at %s:%d, where %zu blocks that have "
                "ended never come",
                first->number, first->whole.file, first->whole.line, ended));
  return false;
}

// All blocks in turn, each until it waits for all others: what comes after is ordered with what
// came before, as if it were another launch.
inline void run_together() {
  cluster = {};
  std::vector<Resident> residents(block_order().size());
  for (bool waiting = true; waiting && !launch.failed;) {
    for (const std::uint32_t i : block_order())
      if (!launch.failed) run_resident(residents[i], i);
    if (launch.failed || !met(residents)) break;
    waiting = residents.front().block.at_grid;
    launch.serial++;
    for (Resident& resident : residents) {
      Block& block = resident.block;
      if (block.at_grid) block.release(block.whole, nullptr, launch.order(), launch.random);
      block.at_grid = false;
    }
    if (!waiting) return;
  }
  launch.failed = true;
  for (Resident& resident : residents) {
    resident.exchange();
    drop_copies();
    resident.exchange();
  }
}

// The blocks of a cluster, from this number on, each until it waits for the others or for a copy.
inline void run_cluster(std::uint32_t first, unsigned size) {
  std::vector<Resident> residents(size);
  cluster.blocks = &residents;
  bool ran = true;
  while (!launch.failed && (ran || land_copy())) {
    ran = false;
    for (unsigned i = 0; i < size && !launch.failed; i++) {
      cluster.in_place = launch.order() == Order::backward ? size - 1 - i : i;
      Resident& resident = residents[cluster.in_place];
      if (!resident.memory.empty() && resident.block.ready.empty()) continue;
      run_resident(resident, first + cluster.in_place);
      ran = true;
    }
  }
  for (Resident& resident : residents) {
    resident.exchange();
    check_ended();
    drop_copies();
    resident.exchange();
  }
  drop_bulk_copies();
  cluster = {};
}

// Lets those blocks go on that have what they waited for, until all have ended or wait.
inline void go_on(std::list<Resident>& waiting) {
  for (auto at = waiting.begin(); at != waiting.end() && !launch.failed;) {
    if (!at->block.has_word()) {
      ++at;
      continue;
    }
    run_resident(*at, at->block.number);
    if (!at->block.at_word()) waiting.erase(at);
    at = waiting.begin();
  }
}

// Blocks one after another. Those that wait for others are put aside; there is room for so few that
// then the lowest numbers come first, for which none but lower ones can wait.
inline void run_alone() {
  constexpr std::size_t most = 4;
  const std::vector<std::uint32_t> order = block_order();
  std::vector<bool> begun(order.size());
  std::list<Resident> waiting;
  std::uint32_t next = 0, lowest = 0;
  cluster = {};
  for (std::size_t i = 0; i < order.size() && !launch.failed; i++) {
    while (begun[order[next]]) next++;
    while (begun[lowest]) lowest++;
    const std::uint32_t number = waiting.size() < most ? order[next] : lowest;
    begun[number] = true;
    start_block(number);
    run_block();
    if (launch.block.at_word() && !launch.failed) put_aside(waiting.emplace_back());
    else drop_bulk_copies();
    go_on(waiting);
  }
  for (Resident& resident : waiting) {
    resident.exchange();
    check_ended();
    drop_copies();
    resident.exchange();
  }
}

inline void run_grid() {
  if (launch.request.cooperative) return run_together();
  const unsigned size = launch.request.cluster;
  if (size == 1) return run_alone();
  for (const std::uint32_t i : block_order()) {
    if (launch.failed) return;
    if (i % size) continue;
    cluster = {};
    run_cluster(i, size);
  }
}

}  // namespace graphc_sim
