// Plays random programs on several threads, to be built with -fsanitize=thread: ends with status
// 0 if every result is right, and the sanitizer ends it with another where it sees a race.
//
// Each task adds one to its cells, having looked that all its predecessors have added theirs in
// this call. The cells are plain memory: only the player's order keeps the accesses apart. In some
// programs all of that is done again and again in a loop, whose iterations count as calls; the
// number that a task expects is then an argument that moves with the iterations.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "pool.h"

using namespace graphc;

namespace {

constexpr int max_chunks = 6;

struct Cells {
  int calls[max_chunks];
};

// Arguments: the number of the call; then its own cells and those of its predecessors, behind a
// count and the count of chunks of each.
void count(void* const* arguments, int, int chunk) {
  for (int i = 0; i < 100; i++) asm volatile("");  // long enough for others to join
  const int call = *static_cast<int*>(arguments[0]);
  Cells* own = static_cast<Cells*>(arguments[1]);
  const auto predecessors = reinterpret_cast<intptr_t>(arguments[2]);
  for (intptr_t i = 0; i < predecessors; i++) {
    const Cells* cells = static_cast<Cells*>(arguments[3 + 2 * i]);
    const auto chunks = reinterpret_cast<intptr_t>(arguments[4 + 2 * i]);
    for (intptr_t c = 0; c < chunks; c++)
      if (cells->calls[c] != call) std::printf("too early\n"), std::exit(1);
  }
  if (++own->calls[chunk] != call) std::printf("played twice or never\n"), std::exit(1);
}

void play_random_program(Pool& pool, unsigned seed, int threads, int calls, int iterations) {
  std::mt19937 random(seed);
  const int tasks = 20, streams = 1 + int(random() % 4);
  const int inside = iterations ? 0 : -1;
  std::vector<Cells> cells(tasks, Cells{});
  std::vector<TaskSpec> specs(tasks);
  std::vector<std::vector<int>> before(tasks), after(tasks);
  std::vector<int> last(streams, -1);
  for (int i = 0; i < tasks; i++) {
    const int stream = int(random() % streams);
    specs[i] = {count,  0, 0,          0, random() % 2 ? 1 : int(1 + random() % max_chunks),
                stream, 0, 0,          0, inside,
                -1,     0, iterations, 0};
    if (last[stream] >= 0) before[i].push_back(last[stream]);
    if (i > 0 && random() % 3 == 0) {
      const int other = int(random() % i);
      if (other != last[stream]) before[i].push_back(other);
    }
    last[stream] = i;
  }
  std::vector<int> call(iterations ? iterations : 1);
  std::vector<Move> moves;
  std::vector<Argument> arguments;
  auto argument = [&](const void* p) {
    arguments.push_back({0, int64_t(reinterpret_cast<intptr_t>(p))});
  };
  std::vector<int32_t> successors;
  for (int i = 0; i < tasks; i++) {
    specs[i].first_argument = int(arguments.size());
    specs[i].predecessors = int(before[i].size());
    if (iterations) moves.push_back({4, int32_t(arguments.size()), iterations});
    argument(call.data());
    argument(&cells[i]);
    argument(reinterpret_cast<void*>(before[i].size()));
    for (int p : before[i]) {
      argument(&cells[p]);
      argument(reinterpret_cast<void*>(intptr_t(specs[p].chunks)));
      after[p].push_back(i);
    }
  }
  for (int i = 0; i < tasks; i++) {
    specs[i].first_successor = int(successors.size());
    specs[i].successors = int(after[i].size());
    successors.insert(successors.end(), after[i].begin(), after[i].end());
  }
  std::vector<LoopSpec> loops;
  if (iterations) {  // the task that stands for the loop comes first
    specs.insert(specs.begin(), {nullptr, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0, 0, 0});
    loops.push_back({0, tasks, iterations, 0, int(moves.size()), -1});
    for (int32_t& successor : successors) successor++;
  }
  Program program(specs.data(), int(specs.size()), successors.data(), int(successors.size()),
                  arguments.data(), int(arguments.size()), loops.data(), int(loops.size()),
                  moves.data(), int(moves.size()), streams, threads, true);
  const uint64_t bases[] = {0};
  for (int n = 0; n < calls; n++) {
    for (size_t t = 0; t < call.size(); t++) call[t] = int(n * call.size() + t) + 1;
    program.bind(bases);
    pool.play(program);
  }
  pool.forget(program);
}

}  // namespace

int main() {
  Pool& pool = *new Pool;
  for (unsigned seed = 0; seed < 60; seed++) {
    if (seed % 2) play_random_program(pool, seed, 2 + seed % 3, 200, 0);
    else play_random_program(pool, seed, 2 + seed % 3, 40, 5);
  }
  std::printf("played\n");
}
