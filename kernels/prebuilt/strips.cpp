// Plays a program strip by strip. See strips.h.
#include "prebuilt/strips.h"

#include "prebuilt/pooling.h"

namespace graphc::strips {
namespace {
constexpr uint32_t FIRST_TIME = 1u << 31;
void (*const STATEMENTS[])(const State&, const Step&) = {load, store,  index,  inside, load_if,
                                                         take, search, philox, window};

thread_local Scratch values, descriptions;

constexpr long aligned(long bytes) { return (bytes + 63) / 64 * 64; }

// A pointer that moves with the strips.
struct Patch {
  char** pointer;
  int32_t access;
};

class Player {
 public:
  // For boxes of the size of this one, with blocks of which `lanes` are live; its tables in `tables`.
  Player(const Program& program, const long* low, const long* high, long lanes, Scratch& tables)
      : program_(&program), state_{&program, nullptr, {}, nullptr, nullptr, 0} {
    const int places = program.accesses + program.values + program.constants;
    long bytes[] = {aligned(program.accesses * sizeof(Lines)), aligned(places * sizeof(Place)),
                    aligned(program.instructions * sizeof(Step)),
                    aligned(program.instructions * 4 * sizeof(Patch))};
    char* at = tables.at_least(SIZE + bytes[0] + bytes[1] + bytes[2] + bytes[3]) + SIZE;
    state_.lines = (Lines*)at;
    state_.places = (Place*)(at += bytes[0]);
    steps_ = (Step*)(at += bytes[1]);
    patches_ = (Patch*)(at += bytes[2]);
    state_.layout = lay_out(program, low, high, lanes, state_.lines);
    values_ = values.at_least(program.scratch, 4096);
    prepare(values_);
  }

  // The player that make() left in front of its tables.
  static Player& made(const Scratch& tables) { return *(Player*)tables.memory(); }
  static void make(const Program& program, const long* low, const long* high, Scratch& tables) {
    const Player player(program, low, high, program.width, tables);
    made(tables) = player;
  }

  // To the box that begins at `low`.
  void move_to(char* const* memory, const long* low) {
    state_.memory = memory;
    begin_at(*program_, memory, low, state_.lines);
  }
  // Whether the memory of strips is where it was.
  bool holds() const { return values.at_least(program_->scratch, 4096) == values_; }

  long strips() const { return state_.layout.strips; }

  // Strips [begin, end).
  void play(long begin, long end) {
    const Layout& layout = state_.layout;
    long index[AXES], rest = begin;
    index[layout.inner] = rest % layout.pieces, rest /= layout.pieces;
    for (int d = layout.inner - 1; d >= 0; d--)
      index[d] = rest % layout.extent[d], rest /= layout.extent[d];
    uint32_t changed = ~0u;
    long before = 0;
    for (long strip = begin; strip < end; strip++) {
      const long from = index[layout.inner] * layout.cut;
      state_.n = layout.inner < layout.rank
                     ? least(layout.cut, layout.extent[layout.inner] - from) * layout.behind
                     : 1;
      if (state_.n > before) changed = ~0u;
      before = state_.n;
      move(index, from);
      play_strip(changed);
      changed = 0;
      int d = layout.inner;
      if (++index[d] == layout.pieces) {
        index[d] = 0, changed |= layout.pieces > 1 ? 1u << d : 0;
        while (--d >= 0) {
          changed |= 1u << d;
          if (++index[d] < layout.extent[d]) break;
          index[d] = 0;
        }
      } else changed |= 1u << d;
    }
  }

 private:
  static constexpr long SIZE = 1024;

  // The places of accesses, values and constants, and the steps.
  void prepare(char* values) {
    const Program& p = *program_;
    const Value* own = p.array<Value>(p.values_at);
    const Instruction* instructions = p.array<Instruction>(p.instructions_at);
    const uint32_t in_strip = state_.layout.in_strip();
    Place* places = state_.places;
    for (int v = 0; v < p.accesses + p.values; v++)
      places[v] = {values + own[v].offset, own[v].bytes * W, 0};
    for (int a = 0; a < p.accesses; a++) {
      const Lines& lines = state_.lines[a];
      if (lines.way == SAME || lines.way == ROWS) places[a].step = 0;
      places[a].jump = lines.way == ROWS ? own[a].bytes * W : lines.jump;
    }
    for (int c = 0; c < p.constants; c++)
      places[p.accesses + p.values + c] = {(char*)p.array<char>(p.constants_at) + c * CONSTANT, 0,
                                           0};
    count_ = patch_count_ = 0;
    for (int i = 0; i < p.instructions; i++) {
      const Instruction& instruction = instructions[i];
      Step& step = steps_[count_];
      const bool access = instruction.result < p.accesses;
      step.operation = instruction.kind < FIRST ? nullptr : OPERATIONS[instruction.kind - FIRST];
      step.statement = instruction.kind < FIRST ? STATEMENTS[instruction.kind] : nullptr;
      step.instruction = &instruction;
      step.settings = p.array<int64_t>(p.settings_at) + instruction.settings;
      step.axes = state_.layout.merged(instruction.axes) | FIRST_TIME;
      step.bytes = own[instruction.result].bytes;
      step.uniform = !access && !(step.axes & in_strip);
      step.per_row = !access && !step.uniform && state_.layout.row &&
                     !(step.axes & 1u << (state_.layout.rank - 1));
      step.in_place = access && state_.lines[instruction.result].way == IN_PLACE;
      if (instruction.kind == LOAD || instruction.kind == STORE) {
        if (step.in_place) continue;
        if (instruction.kind == STORE) {
          state_.lines[instruction.result].way = COPIED;
          places[instruction.result].jump = 0;
        }
      } else if (step.per_row) {
        places[instruction.result].step = 0;
        places[instruction.result].jump = own[instruction.result].bytes * W;
      } else if (step.uniform) {
        places[instruction.result].step = 0;
        if (instruction.kind == WINDOW && instruction.operands[3] >= p.accesses)
          places[instruction.operands[3]].step = 0;
      }
      if (step.in_place) patches_[patch_count_++] = {&step.operands.result, instruction.result};
      step.operands.result = places[instruction.result].at;
      step.operands.jump[3] = step.in_place ? state_.lines[instruction.result].jump : 0;
      bool jumps = step.operands.jump[3] != 0;
      for (int k = 0; step.operation && k < 3; k++) {
        const int32_t operand = instruction.operands[k];
        if (operand < 0) break;
        step.operands.at[k] = places[operand].at, step.operands.step[k] = places[operand].step;
        step.operands.jump[k] = places[operand].jump;
        jumps = jumps || places[operand].jump != 0;
        if (operand >= p.accesses || state_.lines[operand].way != IN_PLACE) continue;
        patches_[patch_count_++] = {(char**)&step.operands.at[k], operand};
        step.in_place = true;
      }
      step.by_rows = jumps && !step.per_row;
      count_++;
    }
  }

  // To the strip at an index.
  void move(const long* index, long from) {
    const Layout& layout = state_.layout;
    for (int a = 0; a < program_->accesses; a++) {
      Lines& own = state_.lines[a];
      long here = own.first;
      for (int d = 0; d < layout.inner; d++) here += index[d] * own.stride[d];
      if (layout.inner < layout.rank) here += from * own.stride[layout.inner];
      own.here = here;
      if (own.way == IN_PLACE) state_.places[a].at = (char*)here;
    }
  }

  void play_strip(uint32_t changed) {
    const long registers = (state_.n + W - 1) / W, row = state_.layout.row,
               rows = row ? state_.n / row : 1;
    const bool rest = state_.n % W != 0;
    for (const Patch *patch = patches_, *end = patches_ + patch_count_; patch < end; patch++)
      *patch->pointer = (char*)state_.lines[patch->access].here;
    for (const Step *step = steps_, *end = steps_ + count_; step < end; step++) {
      if (!(step->axes & changed)) continue;
      if (!step->operation) step->statement(state_, *step);
      else if (rest && step->in_place) play_rest(*step, step->operands);
      else if (step->by_rows) step->operation(step->operands, row / W, rows);
      else if (step->per_row) step->operation(step->operands, 1, rows);
      else step->operation(step->operands, step->uniform ? 1 : registers, 1);
    }
  }

  // Whole registers, and the elements behind them apart: nothing is read or written behind the last.
  __attribute__((noinline)) void play_rest(const Step& step, Operands operands) const {
    alignas(64) char parts[4][CONSTANT] = {};
    const long whole = state_.n / W, rest = state_.n % W;
    if (whole) step.operation(operands, whole, 1);
    for (int k = 0; k < 3 && step.operand(k) >= 0; k++) {
      operands.at[k] += whole * operands.step[k];
      if (!operands.step[k]) continue;
      __builtin_memcpy(parts[k], operands.at[k], operands.step[k] / W * rest);
      operands.at[k] = parts[k];
    }
    char* const result = operands.result + whole * W * step.bytes;
    operands.result = parts[3];
    step.operation(operands, 1, 1);
    __builtin_memcpy(result, parts[3], rest * step.bytes);
  }

  const Program* program_;
  State state_;
  Step* steps_;
  Patch* patches_;
  char* values_;
  int count_, patch_count_;
};

void play(const Program& program, char* const* memory, const long* low, const long* high,
          long lanes) {
  Player player(program, low, high, lanes, descriptions);
  player.move_to(memory, low);
  player.play(0, player.strips());
}
// The same with what is kept for boxes of this size.
void play(const Program& program, char* const* memory, const long* low, const long* high,
          Kept& kept) {
  bool same = kept.program == &program && Player::made(kept.tables).holds();
  for (int d = 0; d < program.rank && same; d++) same = kept.size[d] == high[d] - low[d];
  if (!same) {
    Player::make(program, low, high, kept.tables);
    kept.program = &program;
    for (int d = 0; d < program.rank; d++) kept.size[d] = high[d] - low[d];
  }
  Player& player = Player::made(kept.tables);
  player.move_to(memory, low);
  player.play(0, player.strips());
}
static_assert(sizeof(Player) <= 1024);
}  // namespace

void run(const Program& program, char* const* memory, const long* low, const long* high,
         Kept* kept) {
  for (int d = 0; d < program.rank; d++)
    if (low[d] >= high[d]) return;
  const int lane = program.lane;
  const long lanes = lane < 0 ? 0 : high[lane] % program.width;
  if (!lanes && kept) return play(program, memory, low, high, *kept);
  if (!lanes) return play(program, memory, low, high, program.width);
  long border[AXES] = {};
  for (int d = 0; d < program.rank; d++) border[d] = high[d];
  border[lane] -= lanes;
  if (low[lane] < border[lane]) {
    if (kept) play(program, memory, low, border, *kept);
    else play(program, memory, low, border, program.width);
  }
  for (int d = 0; d < program.rank; d++) border[d] = low[d];
  border[lane] = high[lane] - lanes;
  play(program, memory, border, high, lanes);
}

void run_share(const Program& program, char* const* memory, long begin, long end, long of) {
  long low[AXES] = {}, high[AXES];
  for (int d = 0; d < program.rank; d++) {
    high[d] = program.extents[d];
    if (high[d] <= 0) return;
  }
  const int lane = program.lane;
  const long lanes = lane < 0 ? 0 : high[lane] % program.width;
  const auto share = [&](long live) {
    Player player(program, low, high, live, descriptions);
    player.move_to(memory, low);
    const long first = player.strips() * begin / of, last = player.strips() * end / of;
    if (first < last) player.play(first, last);
  };
  if (!lanes) return share(program.width);
  high[lane] -= lanes;
  if (high[lane] > 0) share(program.width);
  low[lane] = high[lane], high[lane] += lanes;
  share(lanes);
}
}  // namespace graphc::strips

// A pointwise kernel: programs one after another, each with its share of the work.
namespace {
struct Part {
  int64_t begin, end;  // of the kernel's work
  int64_t program;     // bytes from the beginning
};
struct Pointwise {
  int64_t work, chunks, parts;
  Part part[];
};
}  // namespace

extern "C" void graphc_pointwise(void* const* arguments, int phase, int chunk) {
  const Pointwise& kernel = *(const Pointwise*)arguments[-1];
  if (phase != 0) return;
  const long begin = kernel.work * chunk / kernel.chunks,
             end = kernel.work * (chunk + 1) / kernel.chunks;
  long low = 0, high = kernel.parts;  // the first part that ends behind begin
  while (low < high) {
    const long middle = (low + high) / 2;
    if (kernel.part[middle].end <= begin) low = middle + 1;
    else high = middle;
  }
  for (long p = low; p < kernel.parts && kernel.part[p].begin < end; p++) {
    const Part& part = kernel.part[p];
    const auto& program = *(const graphc::strips::Program*)((const char*)&kernel + part.program);
    graphc::strips::run_share(program, (char* const*)arguments,
                              graphc::most(begin, part.begin) - part.begin,
                              graphc::least(end, part.end) - part.begin, part.end - part.begin);
  }
}
