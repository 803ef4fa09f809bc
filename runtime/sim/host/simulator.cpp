// simulator.cpp: the simulated GPU: runs launches and provides what kernels call. It is built once
// as a shared object that all kernels resolve against. Kernels of a check build also call the
// functions that -fsanitize=thread and -fsanitize=bounds insert; those here replace the sanitizers'
// libraries, so that each load and store is tested against the memory of a GPU.
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>

#include "grid.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define VISIBLE __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

using namespace graphc_sim;

// What kernels call.

EXPORT int graphc_sim_barrier(int kind, int predicate, const char* file, int line) {
  return barrier(kind, 0, predicate, file, line);
}
VISIBLE void graphc_sim_part_barrier(int count, const char* file, int line) {
  barrier(plain, static_cast<unsigned>(count), false, file, line);
}
VISIBLE void graphc_sim_grid_barrier(const char* file, int line) { grid_barrier(file, line); }
EXPORT void graphc_sim_warp_barrier(unsigned mask, const char* file, int line) {
  warp_barrier(mask, file, line);
}
EXPORT unsigned long long graphc_sim_shuffle(int kind, unsigned mask, unsigned long long value,
                                             unsigned lane, int width, const char* file, int line) {
  return shuffle(kind, mask, value, lane, static_cast<unsigned>(width), file, line);
}
EXPORT unsigned graphc_sim_vote(unsigned mask, int predicate, const char* file, int line) {
  return vote(mask, predicate, file, line);
}
EXPORT void graphc_sim_together(void (*work)(void**), void* payload, const char* file, int line) {
  meet(together, ~0u, payload, file, line, [&](const Meeting& meeting) {
    if (meeting.mask != ~0u) fail(nullptr, format("%s:%d needs a warp of 32 lanes", file, line));
    void* lanes[32];
    std::memcpy(lanes, meeting.payloads, sizeof lanes);
    work(lanes);
  });
}
// An atomic operation of the current thread at an address.
static void change_at(std::uintptr_t at, unsigned bytes, void* pc) {
  check_aligned(at, bytes, "changes", pc);
  change(at, bytes, pc);
  if (launch.request.check) check_access({at, bytes, true, true, pc});
}
EXPORT void graphc_sim_atomic(void* address, int bytes) {
  change_at(reinterpret_cast<std::uintptr_t>(address), static_cast<unsigned>(bytes), CALLER);
}
VISIBLE void graphc_sim_put_word(unsigned* word, unsigned value) {
  const auto at = reinterpret_cast<std::uintptr_t>(word);
  change_at(at, sizeof *word, CALLER);
  replace_left(at);
  *word = value;
}
static void check_word(const unsigned* word, void* pc) {
  const auto at = reinterpret_cast<std::uintptr_t>(word);
  check_aligned(at, sizeof *word, "waits for", pc);
  if (launch.request.check) check_access({at, sizeof *word, true, true, pc});
}
VISIBLE void graphc_sim_await_word(const unsigned* word, unsigned value, const char* file,
                                   int line) {
  check_word(word, CALLER);
  await_word(word, value, file, line);
}
VISIBLE bool graphc_sim_has_word(const unsigned* word, unsigned value, const char* file, int line) {
  check_word(word, CALLER);
  if (*word != value) return false;
  await_word(word, value, file, line);
  return true;
}
EXPORT void graphc_sim_device_fence() { device_fence(); }
VISIBLE void graphc_sim_copy_async(void* shared, const void* global, int bytes, int from_global) {
  start_copy(static_cast<char*>(shared), static_cast<const char*>(global), bytes, from_global,
             CALLER);
}
VISIBLE void graphc_sim_copy_commit() { launch.current->group++; }
VISIBLE void graphc_sim_copy_wait(int pending) {
  wait_copies(static_cast<unsigned>(pending), CALLER);
}
VISIBLE void graphc_sim_load_matrices(unsigned* to, const void* row, bool turned, const char* file,
                                      int line) {
  load_matrices(to, row, turned, file, line, CALLER);
}
VISIBLE void graphc_sim_multiply(int kind, float* sum, const unsigned* a, const unsigned* b,
                                 const char* file, int line) {
  multiply_matrices(static_cast<Element>(kind), sum, a, b, file, line);
}
VISIBLE void graphc_sim_group_multiply(int kind, float* sum, const void* a, const void* b, int k,
                                       bool a_along_k, bool b_along_k, const char* file, int line) {
  group_multiply({static_cast<Element>(kind), sum, static_cast<const char*>(a),
                  static_cast<const char*>(b), k, a_along_k, b_along_k},
                 file, line, CALLER);
}
VISIBLE void graphc_sim_group_fence() { launch.current->group_fenced = true; }
VISIBLE void graphc_sim_group_commit() { launch.current->product_group++; }
VISIBLE void graphc_sim_group_wait(int pending) {
  group_wait(static_cast<unsigned>(pending), CALLER);
}
VISIBLE void graphc_sim_proxy_fence() { launch.current->fences++; }

VISIBLE void graphc_sim_phase_begin(void* barrier, int arrivals) {
  begin_phases(barrier, arrivals, CALLER);
}
VISIBLE void graphc_sim_phase_fence() { fence_phases(); }
VISIBLE void graphc_sim_phase_expect(void* barrier, int bytes) {
  arrive_at_phase(barrier, launch.block.rank, bytes, CALLER);
}
VISIBLE void graphc_sim_phase_arrive(void* barrier, int rank) {
  arrive_at_phase(barrier, static_cast<unsigned>(rank), 0, CALLER);
}
VISIBLE void graphc_sim_phase_wait(void* barrier, int parity, const char* file, int line) {
  wait_for_phase(barrier, parity, file, line, CALLER);
}
VISIBLE void graphc_sim_bulk_copy(void* to, const void* map, int x, int y, void* barrier,
                                  int blocks) {
  start_bulk_copy(to, map, x, y, barrier, blocks, CALLER);
}
VISIBLE int graphc_sim_cluster_rank() { return static_cast<int>(launch.block.rank); }
VISIBLE void graphc_sim_cluster_arrive() { arrive_at_cluster(CALLER); }
VISIBLE void graphc_sim_cluster_wait(const char* file, int line) {
  wait_for_cluster(file, line, CALLER);
}
VISIBLE void graphc_sim_cluster_read(void* to, const void* from, int bytes, int rank) {
  read_in_cluster(to, from, static_cast<unsigned>(bytes), static_cast<unsigned>(rank), CALLER);
}

// What the compiler calls in a check build.

#define ACCESS(bytes, prefix, aligned)                       \
  EXPORT void __tsan_##prefix##read##bytes(void* p) {        \
    const auto at = reinterpret_cast<std::uintptr_t>(p);     \
    if (aligned) check_aligned(at, bytes, "reads", CALLER);  \
    check_access({at, bytes, false, false, CALLER});         \
  }                                                          \
  EXPORT void __tsan_##prefix##write##bytes(void* p) {       \
    const auto at = reinterpret_cast<std::uintptr_t>(p);     \
    if (aligned) check_aligned(at, bytes, "writes", CALLER); \
    check_access({at, bytes, true, false, CALLER});          \
  }
#define ACCESSES(bytes) ACCESS(bytes, , true) ACCESS(bytes, unaligned_, false)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
EXPORT void __tsan_read_range(void* p, std::size_t bytes) {
  check_access(
      {reinterpret_cast<std::uintptr_t>(p), static_cast<unsigned>(bytes), false, false, CALLER});
}
EXPORT void __tsan_write_range(void* p, std::size_t bytes) {
  check_access(
      {reinterpret_cast<std::uintptr_t>(p), static_cast<unsigned>(bytes), true, false, CALLER});
}
EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void*) {}
EXPORT void __tsan_func_exit() {}
EXPORT void __tsan_vptr_update(void*, void*) {}
EXPORT void __ubsan_handle_out_of_bounds(void*, unsigned long index) {
  if (launch.current)
    report(extent, CALLER,
           format("uses index %ld, which is outside of its array", static_cast<long>(index)));
}

static int find_module(dl_phdr_info* info, std::size_t, void* entry) {
  const auto address = reinterpret_cast<std::uintptr_t>(entry);
  std::uintptr_t low = ~std::uintptr_t{0}, high = 0;
  bool found = false;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    const std::uintptr_t start = info->dlpi_addr + header.p_vaddr;
    low = std::min(low, start);
    high = std::max(high, start + header.p_memsz);
    found |= address - start < header.p_memsz;
  }
  if (!found) return 0;
  launch.module.image = {low, high - low};
  launch.module.shared = {};
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_TLS)
      launch.module.shared = {reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data),
                              info->dlpi_phdr[i].p_memsz};
  return 1;
}

static const char* signal_text(int number, std::uintptr_t address) {
  if (number == SIGFPE) return "divides an integer by zero";
  if (number == SIGILL) return "executes __trap or __builtin_unreachable";
  if (stacks.contains(address)) return "uses more than 64 KiB of stack";
  return nullptr;
}

// A signal in a thread of the launch ends the launch; any other is not ours.
static void on_signal(int number, siginfo_t* info, void* context) {
  if (!launch.current) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  void* pc = reinterpret_cast<void*>(registers[REG_RIP] + 1);
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const char* text = signal_text(number, address);
  const std::string where =
      memory.contains(address) ? place_text(memory, address) : format("address 0x%lx", address);
  fail(pc, text ? text : "reads or writes " + where);
}

// Installs the handlers, and puts back what was there.
class Signals {
 public:
  Signals() {
    static char stack[64 << 10];
    const stack_t mine{stack, 0, sizeof stack};
    sigaltstack(&mine, &stack_);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < count; i++) sigaction(numbers[i], &action, &old_[i]);
  }
  ~Signals() {
    for (int i = 0; i < count; i++) sigaction(numbers[i], &old_[i], nullptr);
    sigaltstack(&stack_, nullptr);
  }

 private:
  static constexpr int count = 4, numbers[count] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  struct sigaction old_[count];
  stack_t stack_;
};

// Ends a launch that takes too long: in a check build at the next access, which knows its line;
// else once it is in its own code, as in that of the simulator something might be half done.
static void on_timer(int, siginfo_t*, void* context);

class Timer {
 public:
  explicit Timer(std::uint32_t milliseconds) {
    struct sigaction action{};
    action.sa_sigaction = on_timer;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
    sigaction(SIGVTALRM, &action, &old_);
    start(milliseconds);
  }
  ~Timer() {
    start(0);
    sigaction(SIGVTALRM, &old_, nullptr);
  }
  static void start(std::uint32_t milliseconds) {
    const itimerval once{{0, 0}, {milliseconds / 1000, milliseconds % 1000 * 1000}};
    setitimer(ITIMER_VIRTUAL, &once, nullptr);
  }

 private:
  struct sigaction old_;
};

static void on_timer(int, siginfo_t*, void* context) {
  const auto pc =
      static_cast<std::uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  if (launch.request.check && !launch.late) {
    launch.late = true;
    return Timer::start(100);
  }
  if (!launch.current || !launch.module.image.contains(pc)) return Timer::start(1);
  fail(reinterpret_cast<void*>(pc + 1), late_text());
}

static void check_slack() {
  if (const Allocation* a = memory.overrun()) {
    report(outside, nullptr,
           format("writes behind the end of memory of %lu bytes", a->stop - a->start));
    memory.restore(*a);
  }
}

// What Python calls (native.py).

EXPORT std::uint64_t graphc_sim_allocate(std::uint64_t bytes) { return memory.allocate(bytes); }
EXPORT void graphc_sim_free(std::uint64_t address) {
  const Allocation& freed = memory.free(address);
  shadow.forget(freed.first_page, freed.last_page);
}
EXPORT std::uint64_t graphc_sim_base() { return memory.base(); }
EXPORT std::uint64_t graphc_sim_size() { return Memory::size; }
// The host, or a copy, has written bytes.
EXPORT void graphc_sim_wrote(std::uint64_t address, std::uint64_t bytes) {
  shadow.each_global(address, bytes,
                     [](Cell& cell, std::uint8_t mask) { cell.make_valid(for_good, mask); });
}
// The number of findings.
EXPORT int graphc_sim_launch(const Request* request) {
  launch.request = *request;
  launch.serial++;
  launch.failed = false;
  launch.late = false;
  launch.random.seed(request->seed);
  launch.block.index = {};
  findings.clear();
  dl_iterate_phdr(find_module, reinterpret_cast<void*>(request->entry));
  if (request->check) {
    shadow.shared.resize(std::max(shadow.shared.size(), launch.module.shared.size / 4 + 2));
    if (request->opening) forget_scratch();
  }
  gridDim = request->grid;
  blockDim = request->block;
  {
    const Signals signals;
    const Timer timer(request->milliseconds);
    const unsigned mode = __builtin_ia32_stmxcsr();  // kernels set their own
    run_grid();
    __builtin_ia32_ldmxcsr(mode);
  }
  end_changes();
  if (launch.failed) stacks.reset();
  if (!launch.failed && request->check && request->completes && findings.all().empty())
    check_written();
  if (!launch.failed && !request->check) check_slack();
  return static_cast<int>(findings.all().size());
}
EXPORT const Finding* graphc_sim_findings() { return findings.all().data(); }
// For each byte 1 if launches with this serial have read it, 2 if they have written it.
EXPORT void graphc_sim_touched(std::uint64_t address, std::uint64_t bytes, std::uint32_t serial,
                               std::uint8_t* touched) {
  shadow.each_global(address, bytes, [&](Cell& cell, std::uint8_t mask) {
    for (int i = 0; i < 4; i++)
      if (mask >> i & 1) {
        const bool now = cell.touched_serial == serial;
        *touched++ = now ? (cell.touched_reads >> i & 1) | (cell.touched_writes >> i & 1) << 1 : 0;
      }
  });
}
