// threads.h: collective operations of a block's threads: barriers, warp-wide operations, and the
// asynchronous copies of each thread.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

#include "check.h"

namespace graphc_sim {

// Kinds of barriers: plain, the three of __syncthreads_*, and that of all blocks.
enum Kinds { plain, counting, all_of, any_of, of_grid };
enum Meet {
  at_warp_barrier,
  at_shuffle,
  at_vote,
  together,
  at_matrices,
  at_product,
  at_group_product
};

inline void wait_at(State state, const char* file, int line) {
  Thread& thread = *launch.current;
  thread.state = state;
  thread.file = file;
  thread.line = line;
  wait();
}

// Waits for the first `count` threads, or for all if that is 0. The value of __syncthreads_count,
// _and, _or; 0 for any other barrier.
inline int barrier(int kind, unsigned count, bool predicate, const char* file, int line) {
  Block& block = launch.block;
  Thread& thread = *launch.current;
  Barrier& barrier = count ? block.part : block.whole;
  count = count ? count : static_cast<unsigned>(block.threads.size());
  if (const std::size_t ended = block.ended_of(count))
    fail(nullptr, format("waits at the barrier at %s:%d, which %zu threads that have ended never "
                         "reach",
                         file, line, ended));
  if (thread.number >= count || count > block.threads.size())
    fail(nullptr, format("waits at the barrier at %s:%d of the first %u threads, it is number %u "
                         "of %zu",
                         file, line, count, thread.number, block.threads.size()));
  if (barrier.arrived == 0) {
    barrier = {0, count, kind, line, kind == all_of, file};
  } else if (barrier.line != line || barrier.kind != kind || barrier.count != count ||
             std::strcmp(barrier.file, file)) {
    fail(nullptr, format("waits at the barrier at %s:%d, while %u threads wait at that at %s:%d",
                         file, line, barrier.arrived, barrier.file, barrier.line));
  }
  if (kind == counting) barrier.value += predicate;
  if (kind == all_of) barrier.value &= predicate;
  if (kind == any_of) barrier.value |= predicate;
  block.at_grid = ++barrier.arrived == count && kind == of_grid;
  if (barrier.arrived < count || block.at_grid) {
    wait_at(&barrier == &block.whole ? State::at_barrier : State::at_part_barrier, file, line);
    return thread.barrier_value;
  }
  block.release(barrier, &thread, launch.order(), launch.random);
  const int value = barrier.value;
  if (launch.order() == Order::shuffled && launch.random() % 2) {
    block.ready.push_back(thread.number);
    wait_at(State::ready, file, line);
  }
  return value;
}

// Waits for all threads of all blocks, which only those of a cooperative launch may.
inline void grid_barrier(const char* file, int line) {
  if (!launch.request.cooperative)
    fail(nullptr, format("waits for all blocks at %s:%d, in a launch that is not cooperative: they "
                         "need not run at once",
                         file, line));
  barrier(of_grid, 0, false, file, line);
}

// Waits until another block has put a word.
inline void await_word(const unsigned* word, unsigned value, const char* file, int line) {
  if (launch.request.cooperative || launch.request.cluster > 1)
    fail(nullptr,
         format("waits for a word at %s:%d, in a launch whose blocks run together", file, line));
  Thread& thread = *launch.current;
  thread.word = word;
  thread.awaited = value;
  while (*word != value) wait_at(State::at_word, file, line);
  know_put(reinterpret_cast<std::uintptr_t>(word), file, line);
}

// Waits until all lanes of the mask have come; the last one calls finish(meeting) for all.
template <class Finish>
inline void meet(int kind, std::uint32_t mask, void* payload, const char* file, int line,
                 const Finish& finish) {
  Thread& thread = *launch.current;
  Warp& warp = launch.block.warps[thread.warp()];
  const std::uint32_t me = 1u << thread.lane();
  mask &= warp.lanes;
  if (!(mask & me))
    fail(nullptr, format("lane %u calls at %s:%d with mask 0x%x, which is without it",
                         thread.lane(), file, line, mask));
  if (mask & warp.ended)
    fail(nullptr,
         format("waits at %s:%d for lanes 0x%x, which have ended", file, line, mask & warp.ended));
  std::size_t at = 0;
  while (at < warp.meetings.size() && !(warp.meetings[at].mask & mask)) at++;
  if (at == warp.meetings.size()) warp.meetings.push_back({mask, 0, kind, line, file, {}});
  Meeting& meeting = warp.meetings[at];
  if (meeting.mask != mask || meeting.kind != kind)
    fail(nullptr,
         format("calls at %s:%d with mask 0x%x, while lanes 0x%x of the warp wait at "
                "%s:%d with mask 0x%x",
                file, line, mask, meeting.arrived, meeting.file, meeting.line, meeting.mask));
  meeting.payloads[thread.lane()] = payload;
  meeting.arrived |= me;
  if (meeting.arrived != mask) return wait_at(State::in_warp, file, line);
  const Meeting done = meeting;
  warp.meetings.erase(warp.meetings.begin() + static_cast<std::ptrdiff_t>(at));
  finish(done);
  for (std::uint32_t rest = mask & ~me; rest; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
    Thread& other = launch.block.threads[thread.warp() * 32 + lane];
    other.state = State::ready;
    launch.block.ready.push_front(other.number);
  }
}

template <class Body>
inline void each_lane(std::uint32_t mask, const Body& body) {
  for (; mask; mask &= mask - 1) body(static_cast<unsigned>(__builtin_ctz(mask)));
}

inline void warp_barrier(std::uint32_t mask, const char* file, int line) {
  meet(at_warp_barrier, mask, nullptr, file, line, [](const Meeting& meeting) {
    Warp& warp = launch.block.warps[launch.current->warp()];
    if (meeting.mask == (warp.lanes & ~warp.ended)) warp.epoch++;
  });
}

struct Shuffled {
  std::uint64_t value;
  unsigned from;
  bool found;
};

// The lane that a lane reads, of its segment of `width` lanes: its own where there is none.
inline unsigned shuffle_source(int kind, unsigned lane, unsigned argument, unsigned width) {
  const unsigned first = lane & ~(width - 1), end = first + width;
  const unsigned at = kind == 0   ? first + (argument & (width - 1))
                      : kind == 1 ? lane - argument
                      : kind == 2 ? lane + argument
                                  : lane ^ argument;
  return at < end && (at >= first || kind == 3) ? at : lane;
}

inline std::uint64_t shuffle(int kind, std::uint32_t mask, std::uint64_t value, unsigned argument,
                             unsigned width, const char* file, int line) {
  Shuffled mine{value, shuffle_source(kind, launch.current->lane(), argument, width), false};
  meet(at_shuffle, mask, &mine, file, line, [](const Meeting& meeting) {
    std::uint64_t values[32] = {};
    const auto at = [&](unsigned lane) { return static_cast<Shuffled*>(meeting.payloads[lane]); };
    each_lane(meeting.mask, [&](unsigned lane) { values[lane] = at(lane)->value; });
    each_lane(meeting.mask, [&](unsigned lane) {
      at(lane)->found = meeting.mask >> at(lane)->from & 1;
      at(lane)->value = values[at(lane)->from];
    });
  });
  if (!mine.found)
    fail(nullptr, format("shuffles at %s:%d from lane %u, which is not in mask 0x%x", file, line,
                         mine.from, mask));
  return mine.value;
}

struct Vote {
  bool mine;
  std::uint32_t all;
};

inline std::uint32_t vote(std::uint32_t mask, bool predicate, const char* file, int line) {
  Vote mine{predicate, 0};
  meet(at_vote, mask, &mine, file, line, [](const Meeting& meeting) {
    std::uint32_t all = 0;
    const auto at = [&](unsigned lane) { return static_cast<Vote*>(meeting.payloads[lane]); };
    each_lane(meeting.mask, [&](unsigned lane) { all |= std::uint32_t{at(lane)->mine} << lane; });
    each_lane(meeting.mask, [&](unsigned lane) { at(lane)->all = all; });
  });
  return mine.all;
}

// Copies land as late as they may; until then their targets hold NaN.
inline void set_pending(const Copy& copy, bool pending) {
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(copy.to) - launch.module.shared.start;
  each_cell(offset, static_cast<unsigned>(copy.size), [&](std::uintptr_t i, std::uint8_t mask) {
    std::uint8_t& cell = shadow.shared[i].pending;
    cell = pending ? cell | mask : cell & ~mask;
  });
}

inline void start_copy(char* to, const char* from, int size, int read, void* pc) {
  const auto target = reinterpret_cast<std::uintptr_t>(to);
  const auto source = reinterpret_cast<std::uintptr_t>(from);
  const auto bytes = static_cast<unsigned>(size);
  check_aligned(target, bytes, "copies to", pc);
  if (read) check_aligned(source, bytes, "copies from", pc);
  if (!launch.module.shared.contains(target)) fail(pc, "copies to what is not shared memory");
  const Copy copy{to, from, size, read, launch.current->group};
  if (launch.request.check) {
    check_access({target, bytes, true, false, pc});
    if (read) check_access({source, static_cast<unsigned>(read), false, false, pc});
    set_pending(copy, true);
  }
  std::memset(to, 0xFF, bytes);
  launch.current->copies.push_back(copy);
}

// Ends the copies of all groups but the last `pending`; the open group is always pending.
inline void wait_copies(unsigned pending, void* pc) {
  Thread& thread = *launch.current;
  auto keep = thread.copies.begin();
  for (const Copy& copy : thread.copies) {
    if (copy.group + pending >= thread.group) {
      *keep++ = copy;
      continue;
    }
    if (launch.request.check) {
      set_pending(copy, false);
      const auto target = reinterpret_cast<std::uintptr_t>(copy.to);
      check_access({target, static_cast<unsigned>(copy.size), true, false, pc});
    }
    std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.read));
    std::memset(copy.to + copy.read, 0, static_cast<std::size_t>(copy.size - copy.read));
  }
  thread.copies.erase(keep, thread.copies.end());
}

}  // namespace graphc_sim
