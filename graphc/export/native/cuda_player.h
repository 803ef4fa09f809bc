// Plays plans on a GPU by CUDA's driver API. A plan is a function that asks the player for launches,
// copies and events in order; its first call issues them one by one, which loads the kernels, and
// captures them as a graph, which later calls launch.
//
// The first error ends what is being done: what is asked for after it is left out.
#pragma once
#include <cuda.h>
#include <stdlib.h>

#include <initializer_list>

namespace {

// A kernel function: where it is, and the dynamic shared memory that its launches may use.
struct Function {
  int module;
  const char* symbol;
  int shared_bytes;
};

struct Launch {
  int function;
  unsigned grid[3], block[3], shared_bytes;
};

// A launch whose blocks wait for each other, so that all run at once.
struct Joined {
  Launch launch;      // with the most blocks that it can use
  unsigned multiple;  // what divides the number of blocks
  unsigned each;      // the most blocks per multiprocessor
};

constexpr int most_arguments = 512;

// A value of state on the host, row-major, and on the GPU, where an axis of `extent` elements may be
// cut into blocks of `width`, within which it varies fastest.
struct Piece {
  size_t host, device;  // offsets in bytes
  size_t item;          // bytes of an element
  size_t before, extent, behind, width;

  size_t blocks() const { return width ? (extent + width - 1) / width : 0; }

  // Give `move` the offsets of each run of elements that lie together on both sides, and its bytes.
  template <class Move>
  void each(Move move) const {
    if (!width) return move(host, device, extent * item);
    for (size_t o = 0; o < before; o++)
      for (size_t e = 0; e < extent; e++)
        for (size_t i = 0; i < behind; i++) {
          const size_t there = ((o * blocks() + e / width) * behind + i) * width + e % width;
          move(host + ((o * extent + e) * behind + i) * item, device + there * item, item);
        }
  }
};

// `Plan` has the numbers `streams`, `events`, `programs` and `state_bytes`, and the arrays `modules`
// (the images), `functions`, `launches`, `joined` and `pieces`, each with its length behind.
template <class Plan>
class Player {
 public:
  // A player on a device with `arena` bytes of work memory; on an error `error` says which.
  void open(int ordinal, size_t arena, size_t constants) {
    error_ = CUDA_SUCCESS;
    if (!check(cuInit(0)) || !check(cuDeviceGet(&device_, ordinal)) ||
        !check(cuDevicePrimaryCtxRetain(&context_, device_)))
      return;
    retained_ = true;
    const Entered entered(*this);
    int least = 0, greatest = 0;
    check(cuCtxGetStreamPriorityRange(&least, &greatest));
    // The first of several streams has the critical path.
    for (int i = 0; i < Plan::streams; i++)
      check(cuStreamCreateWithPriority(&streams_[i], CU_STREAM_NON_BLOCKING,
                                       i == 0 && Plan::streams > 1 ? greatest : least));
    for (int i = 0; i < Plan::events; i++)
      check(cuEventCreate(&events_[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < Plan::module_count; i++)
      check(cuModuleLoadData(&modules_[i], Plan::modules[i]));
    for (int i = 0; i < Plan::function_count && good(); i++) find(i);
    for (int i = 0; i < Plan::joined_count && good(); i++) count_blocks(i);
    allocate(arena_, arena);
    allocate(state_, Plan::state_bytes);
    if (constants) allocate(constants_, constants);
    check(cuMemHostAlloc((void**)&staged_, Plan::state_bytes, 0));
  }

  void close() {
    if (!retained_) return;
    error_ = CUDA_SUCCESS;
    {
      const Entered entered(*this);
      for (CUstream stream : streams_)
        if (stream) cuStreamSynchronize(stream);
      for (CUgraphExec graph : graphs_)
        if (graph) cuGraphExecDestroy(graph);
      for (CUmodule module : modules_)
        if (module) cuModuleUnload(module);
      for (CUevent event : events_)
        if (event) cuEventDestroy(event);
      for (CUstream stream : streams_)
        if (stream) cuStreamDestroy(stream);
      for (CUdeviceptr memory : {arena_, state_, constants_})
        if (memory) cuMemFree(memory);
      if (staged_) cuMemFreeHost(staged_);
    }
    cuDevicePrimaryCtxRelease(device_);
    retained_ = false;
  }

  CUresult error() const { return error_; }
  CUdeviceptr arena() const { return arena_; }
  CUdeviceptr state() const { return state_; }
  CUdeviceptr constants() const { return constants_; }

  // Makes the context current, and the one before afterwards. Begins without an error.
  class Entered {
   public:
    explicit Entered(Player& player) : player_(player) {
      player.error_ = CUDA_SUCCESS;
      player.check(cuCtxPushCurrent(player.context_));
    }
    ~Entered() {
      CUcontext popped;
      const CUresult ended = cuCtxPopCurrent(&popped);
      if (player_.good()) player_.error_ = ended;
    }

   private:
    Player& player_;
  };

  // Copy, between memory of the host and of the GPU or within either, in the order of stream 0.
  void copy_to(CUdeviceptr to, const void* from, size_t bytes) {
    if (bytes && good()) check(cuMemcpyAsync(to, (CUdeviceptr)from, bytes, streams_[0]));
  }
  void copy_from(void* to, CUdeviceptr from, size_t bytes) {
    copy_to((CUdeviceptr)to, (const void*)from, bytes);
  }

  // Wait for what was issued; after an error, on all streams, as they may not have joined the first.
  void finish() {
    if (good() && check(cuStreamSynchronize(streams_[0]))) return;
    for (CUstream stream : streams_) cuStreamSynchronize(stream);
  }

  void read_state(unsigned char* block) {
    copy_from(staged_, state_, Plan::state_bytes);
    finish();
    if (!good()) return;
    for (int i = 0; i < Plan::piece_count; i++)
      Plan::pieces[i].each([&](size_t host, size_t device, size_t bytes) {
        __builtin_memcpy(block + host, staged_ + device, bytes);
      });
  }

  void write_state(const unsigned char* block) {
    if (!good()) return;
    __builtin_memset(staged_, 0, Plan::state_bytes);
    for (int i = 0; i < Plan::piece_count; i++)
      Plan::pieces[i].each([&](size_t host, size_t device, size_t bytes) {
        __builtin_memcpy(staged_ + device, block + host, bytes);
      });
    copy_to(state_, staged_, Plan::state_bytes);
    finish();
  }

  // Play a program, whose steps `issue` asks for.
  template <class Issue>
  void play(int program, Issue issue) {
    if (!good()) return;
    if (graphs_[program]) {
      check(cuGraphLaunch(graphs_[program], streams_[0]));
      return;
    }
    issue();
    if (!good() || !check(cuStreamBeginCapture(streams_[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)))
      return;
    issue();
    CUgraph graph = nullptr;
    const CUresult ended = cuStreamEndCapture(streams_[0], &graph);
    if (good() && check(ended)) check(cuGraphInstantiateWithFlags(&graphs_[program], graph, 0));
    if (graph) cuGraphDestroy(graph);
  }

  // What a plan asks for.

  void launch(int stream, int first, int count, std::initializer_list<CUdeviceptr> addresses) {
    for (int i = first; i < first + count && good(); i++) {
      const Launch& l = Plan::launches[i];
      check(cuLaunchKernel(functions_[l.function], l.grid[0], l.grid[1], l.grid[2], l.block[0],
                           l.block[1], l.block[2], l.shared_bytes, streams_[stream],
                           pointers(addresses), nullptr));
    }
  }

  void copy(int stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    if (good()) check(cuMemcpyDtoDAsync(to, from, bytes, streams_[stream]));
  }

  void record(int stream, int event) {
    if (good()) check(cuEventRecord(events_[event], streams_[stream]));
  }

  void wait(int stream, int event) {
    if (good()) check(cuStreamWaitEvent(streams_[stream], events_[event], 0));
  }

  // Whether the device holds all blocks of a joined launch at once.
  bool can_join(int joined) const { return blocks_[joined] > 0; }

  void launch_joined(int joined, std::initializer_list<CUdeviceptr> addresses) {
    const Launch& l = Plan::joined[joined].launch;
    if (good())
      check(cuLaunchCooperativeKernel(functions_[l.function], blocks_[joined], 1, 1, l.block[0],
                                      l.block[1], l.block[2], l.shared_bytes, streams_[0],
                                      pointers(addresses)));
  }

 private:
  bool good() const { return error_ == CUDA_SUCCESS; }

  bool check(CUresult result) {
    if (good()) error_ = result;
    return good();
  }

  void allocate(CUdeviceptr& memory, size_t bytes) {
    if (good()) check(cuMemAlloc(&memory, bytes));
  }

  void find(int number) {
    const Function& f = Plan::functions[number];
    CUfunction& found = functions_[number];
    if (check(cuModuleGetFunction(&found, modules_[f.module], f.symbol)) && f.shared_bytes)
      check(cuFuncSetAttribute(found, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               f.shared_bytes));
  }

  void count_blocks(int number) {
    const Joined& j = Plan::joined[number];
    int resident = 0, multiprocessors = 0;
    check(cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &resident, functions_[j.launch.function], (int)j.launch.block[0], j.launch.shared_bytes));
    check(
        cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_));
    if (!good()) return;
    const unsigned each = (unsigned)resident < j.each ? (unsigned)resident : j.each;
    const unsigned most = each * (unsigned)multiprocessors;
    const unsigned blocks = most < j.launch.grid[0] ? most : j.launch.grid[0];
    blocks_[number] = blocks / j.multiple * j.multiple;
  }

  // Pointers to addresses, as launches take them until they return.
  void** pointers(std::initializer_list<CUdeviceptr> addresses) {
    int count = 0;
    for (CUdeviceptr address : addresses) {
      addresses_[count] = address;
      pointers_[count] = &addresses_[count];
      count++;
    }
    return pointers_;
  }

  CUresult error_ = CUDA_SUCCESS;
  bool retained_ = false;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream streams_[Plan::streams] = {};
  CUevent events_[Plan::events + 1] = {};
  CUmodule modules_[Plan::module_count + 1] = {};
  CUfunction functions_[Plan::function_count + 1] = {};
  CUgraphExec graphs_[Plan::programs] = {};
  unsigned blocks_[Plan::joined_count + 1] = {};
  CUdeviceptr arena_ = 0, state_ = 0, constants_ = 0;
  unsigned char* staged_ = nullptr;  // page-locked: the state as it lies on the GPU
  CUdeviceptr addresses_[most_arguments] = {};
  void* pointers_[most_arguments] = {};
};

}  // namespace
