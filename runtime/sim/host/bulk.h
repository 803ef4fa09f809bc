// bulk.h: copies of panels by TMA, the barriers that count their bytes (mbarrier), and the barrier of a
// cluster.
//
// A copy lands when no thread can go on, as late as it may and in any order; until then its target
// is NaN. What must hold is tested when it starts: that it is known that nobody reads or writes the
// target any more. Who reads what a copy wrote must have waited for its barrier's phase.
#pragma once
#include "residents.h"
#include "threads.h"

namespace graphc_sim {

// What tensor_map of the simulated driver packs.
struct MapOfMatrix {
  std::uint64_t mark, address;
  std::uint32_t length, lines;  // elements of two bytes, and lines of them
  std::uint64_t pitch;          // bytes
};
constexpr std::uint64_t map_mark = 0x70616d2d656c6974;
constexpr int panel_lines = 64;
constexpr long panel_bytes = panel_lines * line_bytes;

struct BulkCopy {
  unsigned rank;
  std::uintptr_t offset, barrier;
  MapOfMatrix map;
  int x, y;
};
inline std::deque<BulkCopy> bulk_copies;

inline std::uintptr_t shared_offset(const void* at, unsigned bytes, const char* verb, void* pc) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  if (!launch.module.shared.contains(address)) fail(pc, format("%s what is not shared", verb));
  check_aligned(address, bytes, verb, pc);
  return address - launch.module.shared.start;
}

inline PhaseBarrier* phase_at(Block& block, std::uintptr_t offset) {
  for (PhaseBarrier& one : block.phases)
    if (one.offset == offset) return &one;
  return nullptr;
}
// The barrier at this place in a block of the cluster, which has to be known to the caller.
inline PhaseBarrier& usable_phase(unsigned rank, std::uintptr_t offset, void* pc) {
  if (rank >= cluster.size()) fail(pc, format("names block %u, its cluster has none", rank));
  const Member of = member(rank);
  if (of.memory && !of.block.alive)
    fail(pc, format("arrives at a barrier of block %u, which has ended", of.block.number));
  PhaseBarrier* const found = phase_at(of.block, offset);
  if (!found) fail(pc, "uses a barrier that was not begun");
  const bool own = rank == launch.block.rank;
  if (!(own ? found->known : found->known_to_all))
    fail(pc, format("uses a barrier of %s that need not have begun for it: no fence and no barrier "
                    "of the %s lie between",
                    own ? "its block" : "another block", own ? "block" : "cluster"));
  return *found;
}

inline void begin_phases(void* barrier, int arrivals, void* pc) {
  const std::uintptr_t offset = shared_offset(barrier, 8, "begins a barrier in", pc);
  Block& block = launch.block;
  if (phase_at(block, offset)) fail(pc, "begins a barrier again");
  if (block.phases.size() == most_phases) fail(pc, "begins more barriers than are simulated");
  PhaseBarrier made{};
  made.offset = offset;
  made.number = block.rank * most_phases + static_cast<unsigned>(block.phases.size());
  made.arrivals = made.missing = static_cast<unsigned>(arrivals);
  block.phases.push_back(made);
}
inline void fence_phases() {
  for (PhaseBarrier& one : launch.block.phases) one.fenced = true;
}

inline void wake(Block& block, State state) {
  for (Thread& thread : block.threads)
    if (thread.state == state) {
      thread.state = State::ready;
      block.ready.push_back(thread.number);
    }
}

inline void end_phase(PhaseBarrier& barrier, Block& block) {
  if (barrier.missing || barrier.bytes) return;
  barrier.missing = barrier.arrivals;
  barrier.ended = barrier.joining;
  barrier.joining = {};
  barrier.ended.phases[barrier.number] = ++barrier.phase;
  wake(block, State::at_phase);
}

inline void arrive_at_phase(void* barrier, unsigned rank, long bytes, void* pc) {
  const std::uintptr_t offset = shared_offset(barrier, 8, "arrives at a barrier in", pc);
  PhaseBarrier& at = usable_phase(rank, offset, pc);
  if (!at.missing) fail(pc, "arrives at a barrier whose phase has had all of its arrivals");
  const Thread& thread = *launch.current;
  at.bytes += bytes;
  at.joining.join(known_to(thread));
  known_to(thread).warps[place_of(launch.block.rank, thread.warp())]++;
  at.missing--;
  end_phase(at, member(rank).block);
}

inline void wait_for_phase(void* barrier, int parity, const char* file, int line, void* pc) {
  const std::uintptr_t offset = shared_offset(barrier, 8, "waits at a barrier in", pc);
  usable_phase(launch.block.rank, offset, pc);
  while ((phase_at(launch.block, offset)->phase & 1) == (parity & 1u))
    wait_at(State::at_phase, file, line);
  known_to(*launch.current).join(phase_at(launch.block, offset)->ended);
}

// Tests the target of a copy, a line of a member's memory, and marks it as being written.
inline void begin_line(const Member& to, unsigned rank, std::uintptr_t offset, void* pc) {
  const Known& known = known_to(*launch.current);
  const Line& line = to.block.lines[offset / line_bytes];
  for (unsigned warp = 0; warp < to.block.warps.size(); warp++)
    if (line.readers[warp] > known.warps[place_of(rank, warp)])
      report(race_read, pc,
             format("copies over what products of warp %u of block %u read, and does not know that "
                    "they have ended",
                    warp, to.block.number));
  each_cell(offset, line_bytes, [&](std::uintptr_t i, std::uint8_t mask) {
    Cell& cell = to.cells[i];
    if (cell.valid_in(to.serial) && cell.pending)
      report(pending, pc, "copies over what another copy that is under way writes");
    if (cell.written.serial == to.serial) {
      const Thread& writer = to.block.threads[cell.written.thread];
      if (writer.fences_known <= cell.fences)
        report(race_written, pc,
               format("copies over what thread %u wrote, with no fence for the asynchronous proxy "
                      "before the barrier",
                      cell.written.thread));
    }
    cell.make_valid(to.serial, mask);
    cell.pending |= mask;
  });
}

inline void start_bulk_copy(void* to, const void* map, int x, int y, void* barrier, int blocks,
                            void* pc) {
  BulkCopy copy{};
  std::memcpy(&copy.map, map, sizeof copy.map);
  if (copy.map.mark != map_mark) fail(pc, "copies by what is no tensor map");
  if (launch.request.cooperative) fail(pc, "copies in bulk in a cooperative launch");
  copy.offset = shared_offset(to, 1024, "copies a panel to", pc);
  copy.barrier = shared_offset(barrier, 8, "counts bytes at a barrier in", pc);
  copy.x = x;
  copy.y = y;
  const std::uint32_t whole = blocks ? static_cast<std::uint32_t>(blocks) : 1u << launch.block.rank;
  if (launch.request.check)
    for (int i = 0; i < panel_lines; i++) {
      const long row = long{y} + i, live = std::min(64l, long{copy.map.length} - x);
      if (row < 0 || row >= long{copy.map.lines} || x < 0 || live <= 0) continue;
      const std::uintptr_t from =
          copy.map.address + static_cast<std::uintptr_t>(row) * copy.map.pitch;
      check_access({from + 2 * static_cast<std::uintptr_t>(x), static_cast<unsigned>(2 * live),
                    false, false, pc});
    }
  for (std::uint32_t rest = whole; rest; rest &= rest - 1) {
    copy.rank = static_cast<unsigned>(__builtin_ctz(rest));
    usable_phase(copy.rank, copy.barrier, pc);
    const Member target = member(copy.rank);
    if (launch.request.check)
      for (std::uintptr_t i = 0; i < panel_bytes; i += line_bytes)
        begin_line(target, copy.rank, copy.offset + i, pc);
    std::memset(target.memory + copy.offset, 0xFF, panel_bytes);
    bulk_copies.push_back(copy);
  }
}

// Lets a copy land, any of those under way; false if there is none.
inline bool land_copy() {
  if (bulk_copies.empty()) return false;
  std::size_t at = 0;
  if (launch.order() == Order::backward) at = bulk_copies.size() - 1;
  if (launch.order() == Order::shuffled) at = launch.random() % bulk_copies.size();
  const BulkCopy copy = bulk_copies[at];
  const Member to = member(copy.rank);
  if (!to.block.alive) {
    report(0, nullptr,
           format("lets block %u end while a copy to its memory is under way", to.block.number));
    launch.failed = true;
    return false;
  }
  bulk_copies.erase(bulk_copies.begin() + static_cast<std::ptrdiff_t>(at));
  PhaseBarrier& barrier = *phase_at(to.block, copy.barrier);
  for (int i = 0; i < panel_lines; i++) {
    unsigned short line[64] = {};
    const long row = long{copy.y} + i, live = std::min(64l, long{copy.map.length} - copy.x);
    const std::uintptr_t from =
        copy.map.address + static_cast<std::uintptr_t>(row) * copy.map.pitch;
    if (row >= 0 && row < long{copy.map.lines} && copy.x >= 0 && live > 0)
      std::memcpy(line, reinterpret_cast<const unsigned short*>(from) + copy.x,
                  2 * static_cast<std::size_t>(live));
    const std::uintptr_t offset = copy.offset + static_cast<std::uintptr_t>(i) * line_bytes;
    for (int chunk = 0; chunk < 8; chunk++)
      std::memcpy(to.memory + offset + 16 * (chunk ^ i % 8), line + 8 * chunk, 16);
    if (!launch.request.check) continue;
    each_cell(offset, line_bytes, [&](std::uintptr_t c, std::uint8_t mask) {
      to.cells[c].pending &= static_cast<std::uint8_t>(~mask);
      to.cells[c].written = {};
    });
    Line& known = to.block.lines[offset / line_bytes];
    known.barrier = static_cast<int>(barrier.number);
    known.phase = barrier.phase;
  }
  barrier.bytes -= panel_bytes;
  end_phase(barrier, to.block);
  return true;
}

// Forgets the copies that are under way, in a launch that failed.
inline void drop_bulk_copies() {
  for (const BulkCopy& copy : bulk_copies)
    if (launch.request.check)
      each_cell(copy.offset, panel_bytes, [&](std::uintptr_t i, std::uint8_t mask) {
        member(copy.rank).cells[i].pending &= static_cast<std::uint8_t>(~mask);
      });
  bulk_copies.clear();
}

// What a copy wrote may be read by who has waited for its barrier's phase.
inline void check_landed(const Line& line, void* pc) {
  const Known& known = known_to(*launch.current);
  if (line.barrier >= 0 && known.phases[line.barrier] <= line.phase)
    report(race_written, pc, "reads what a bulk copy wrote, without waiting for its barrier");
}

// The barrier of a cluster, in two halves.
inline void arrive_at_cluster(void* pc) {
  Thread& thread = *launch.current;
  if (thread.in_cluster)
    fail(pc, "arrives at the barrier of its cluster again before it has waited");
  thread.in_cluster = true;
  thread.cluster_turn = cluster.turn;
  cluster.joining.join(known_to(thread));
  const unsigned count = cluster.size() * static_cast<unsigned>(launch.block.threads.size());
  if (++cluster.arrived < count) return;
  cluster.arrived = 0;
  cluster.turn++;
  cluster.known = cluster.joining;
  for (unsigned rank = 0; rank < cluster.size(); rank++) {
    Block& block = member(rank).block;
    block.pass_barrier();
    block.cluster_epoch = block.epoch;
    for (PhaseBarrier& one : block.phases) one.known = one.known_to_all = one.fenced;
    wake(block, State::at_cluster);
  }
}
inline void wait_for_cluster(const char* file, int line, void* pc) {
  Thread& thread = *launch.current;
  if (!thread.in_cluster) fail(pc, "waits for its cluster without having arrived");
  while (cluster.turn == thread.cluster_turn) wait_at(State::at_cluster, file, line);
  thread.in_cluster = false;
  known_to(thread).join(cluster.known);
}

}  // namespace graphc_sim
