// block.h: one block of threads, which run one at a time until they wait for each other. Blocks run
// one after another; those of a cooperative launch take turns where all wait for each other. The
// order of threads and blocks is forward, backward or shuffled.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "fibers.h"
#include "findings.h"
#include "phases.h"

namespace graphc_sim {

enum class Order : int { forward, backward, shuffled };
enum class State : std::uint8_t {
  fresh,
  ready,
  at_barrier,
  at_part_barrier,
  at_phase,
  at_cluster,
  at_word,
  in_warp,
  ended
};

// An asynchronous copy: what of `size` bytes is not read is zero.
struct Copy {
  char* to;
  const char* from;
  int size, read;
  unsigned group;
};

// Sums of products of a warp group until they are waited for: `sum` is the thread's own, now NaN.
struct Held {
  float* sum;
  float values[64];
};
// Sixteen bytes that such a product has read, and may not change before it has ended.
struct Watched {
  const char* at;
  char bytes[16];
};

// Of other blocks the epochs before which this one knows all that they did (fences.h).
struct Epochs {
  std::map<std::uint32_t, std::uint16_t> before;

  void know(std::uint32_t block, std::uint16_t epoch) {
    std::uint16_t& known = before[block];
    known = std::max(known, epoch);
  }
  void join(const Epochs& other) {
    for (const auto& [block, epoch] : other.before) know(block, epoch);
  }
  bool has(std::uint32_t block, std::uint16_t epoch) const {
    const auto found = before.find(block);
    return found != before.end() && epoch < found->second;
  }
};

struct Thread {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  State state = State::fresh;
  std::uint16_t number = 0;
  Index3 place{};
  const char* file = "";  // where it waits
  int line = 0;
  const unsigned* word = nullptr;  // what it waits for to be `awaited`
  unsigned awaited = 0;
  int barrier_value = 0;  // of the barrier that it passed last
  unsigned group = 0;     // of copies, the open one
  std::vector<Copy> copies;
  unsigned product_group = 0;  // of products of a warp group, the open one
  std::map<unsigned, std::vector<Watched>> group_reads;  // of the warp, with its first lane
  std::deque<Held> held;
  bool group_fenced = false;
  // Fences for the asynchronous proxy, and those that the barrier passed last made known.
  std::uint16_t fences = 0, fences_known = 0;
  Epochs fenced, met, known;  // at its last fence, since then by atomic operations, before that
  bool in_cluster = false;    // it has arrived at the barrier of its cluster, in this turn
  std::uint32_t cluster_turn = 0;

  Held* held_at(const float* sum) {
    for (Held& one : held)
      if (one.sum == sum) return &one;
    return nullptr;
  }
  unsigned lane() const { return number % 32; }
  unsigned warp() const { return number / 32; }
};

// Lanes of a warp that meet in one call.
struct Meeting {
  std::uint32_t mask, arrived;
  int kind, line;
  const char* file;
  void* payloads[32];
};

struct Warp {
  std::uint32_t lanes = 0, ended = 0;
  std::uint16_t epoch = 0;  // barriers that all of its lanes have passed
  std::vector<Meeting> meetings;
  Known known;
};

// Threads that wait for each other.
struct Barrier {
  unsigned arrived = 0, count = 0;  // count: of those that must come
  int kind = 0, line = 0, value = 0;
  const char* file = "";
};

class Block {
 public:
  Index3 index{};
  std::uint32_t number = 0;
  std::uint16_t epoch = 0;
  Epochs known;  // to all of its threads
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::deque<std::uint16_t> ready;
  unsigned alive = 0;
  Barrier whole, part;              // of all threads, and of the first ones
  bool at_grid = false;             // all threads wait for the other blocks, at `whole`
  unsigned rank = 0;                // in its cluster
  std::uint16_t cluster_epoch = 0;  // the first epoch behind the last barrier of the cluster
  // Of each four bytes of shared memory how many barriers of the cluster another block that read them
  // had passed, and one more; empty where none has.
  std::vector<std::uint32_t> peer_reads;
  std::vector<PhaseBarrier> phases;
  std::vector<Line> lines;  // of shared memory, where accesses are checked

  template <class Random>
  void start(Index3 place, std::uint32_t block_number, unsigned in_cluster, Index3 extents,
             Order order, Random& random) {
    const unsigned count = extents.x * extents.y * extents.z;
    index = place;
    number = block_number;
    rank = in_cluster;
    phases.clear();
    epoch = cluster_epoch = 0;
    known.before.clear();
    peer_reads.clear();
    alive = count;
    whole = part = Barrier{};
    at_grid = false;
    threads.resize(count);
    warps.assign((count + 31) / 32, Warp{});
    ready.clear();
    for (unsigned i = 0; i < count; i++) {
      Thread& thread = threads[i];
      thread.state = State::fresh;
      thread.number = static_cast<std::uint16_t>(i);
      thread.place = {i % extents.x, i / extents.x % extents.y, i / extents.x / extents.y};
      thread.group = 0;
      thread.copies.clear();
      thread.product_group = 0;
      thread.group_reads.clear();
      thread.held.clear();
      thread.group_fenced = false;
      thread.fences = thread.fences_known = 0;
      for (Epochs* one : {&thread.fenced, &thread.met, &thread.known}) one->before.clear();
      thread.in_cluster = false;
      warps[i / 32].lanes |= 1u << i % 32;
      ready.push_back(thread.number);
    }
    for (unsigned i = 0; i < warps.size(); i++) warps[i].known.warps[rank * most_warps + i] = 1;
    arrange(order, random);
  }

  template <class Random>
  void arrange(Order order, Random& random) {
    if (order == Order::backward) std::sort(ready.rbegin(), ready.rend());
    if (order == Order::shuffled) std::shuffle(ready.begin(), ready.end(), random);
  }

  // All that a barrier waits for have come: they may go on, the current one too, which goes on by
  // itself. Those that a barrier of the first threads does not know are taken to do nothing.
  template <class Random>
  void release(Barrier& barrier, const Thread* current, Order order, Random& random) {
    const State waits = &barrier == &whole ? State::at_barrier : State::at_part_barrier;
    barrier.arrived = 0;
    pass_barrier();
    share_known(waits, current);
    for (PhaseBarrier& one : phases) one.known |= one.fenced && &barrier == &whole;
    for (Thread& thread : threads) {
      if (thread.state == waits) {
        thread.state = State::ready;
        thread.barrier_value = barrier.value;
        if (&thread != current) ready.push_back(thread.number);
      }
    }
    arrange(order, random);
  }

  // What comes from now on is ordered with what came before.
  void pass_barrier() {
    epoch++;
    for (Warp& warp : warps) warp.epoch++;
    for (Thread& thread : threads) {
      thread.fences_known = thread.fences;
      known.join(thread.known);
    }
  }

  // Lets all warps that are at a barrier know what any of them knows.
  void share_known(State waits, const Thread* current) {
    if (phases.empty()) return;
    Known all;
    const auto each_warp = [&](const auto& body) {
      for (const Thread& thread : threads)
        if (thread.lane() == 0 &&
            (thread.state == waits || (current && thread.warp() == current->warp())))
          body(warps[thread.warp()]);
    };
    each_warp([&](Warp& warp) { all.join(warp.known); });
    each_warp([&](Warp& warp) { warp.known.join(all); });
  }

  // How many of the first `count` threads have ended.
  std::size_t ended_of(unsigned count) const {
    if (alive == threads.size()) return 0;
    const std::size_t first = std::min<std::size_t>(count, threads.size());
    return static_cast<std::size_t>(
        std::count_if(threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(first),
                      [](const Thread& thread) { return thread.state == State::ended; }));
  }

  // Whether threads wait for a word that another block puts.
  bool at_word() const {
    const auto waits = [](const Thread& thread) { return thread.state == State::at_word; };
    return alive && std::any_of(threads.begin(), threads.end(), waits);
  }
  // Whether some of them have it, and can go on.
  bool has_word() {
    const std::size_t before = ready.size();
    for (Thread& thread : threads) {
      if (thread.state != State::at_word || *thread.word != thread.awaited) continue;
      thread.state = State::ready;
      ready.push_back(thread.number);
    }
    return ready.size() > before;
  }

  // Where threads are, for a block that cannot go on.
  std::string whereabouts() const {
    std::map<std::string, int> counts;
    for (const Thread& t : threads) {
      if (t.state == State::ended) counts["have ended"]++;
      if (t.state != State::ready && t.state != State::fresh && t.state != State::ended)
        counts[format("wait at %s:%d", t.file, t.line)]++;
    }
    std::string text;
    for (const auto& [what, count] : counts)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " threads " + what;
    return text;
  }
};

}  // namespace graphc_sim
