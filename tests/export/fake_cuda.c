// A driver library whose GPU is the simulated one: kernels are shared objects that the simulator
// made of their CUDA text, memory of the device is memory of this process, copies are made at once
// and kernels are run at once, in the order in which they are issued, or when their graph is
// launched. It takes the place of libcuda.so.1 together with a stub that has all other entry points.
//
// FAKE_SIMULATOR is the path of the simulator. FAKE_RECORD is the path of the record, a line per
// call: its name and what matters of its arguments. Streams, events, modules, graphs and allocations
// are numbered from 1; an address is written as ALLOCATION+OFFSET. FAKE_FAIL="NAME N" lets the N-th
// call of that name fail as for an illegal address, FAKE_MEMORY is the device's memory in bytes,
// FAKE_DEVICES the number of devices.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 4096
#define ARGUMENTS 512
#define NUMBER(handle) ((unsigned long)(uintptr_t)(handle))

// As in runtime/sim/host/launch.h.
typedef struct {
  void* entry;
  const void* packed;
  unsigned grid[3], block[3];
  void* dynamic;
  uint32_t shared_bytes, order, seed, check, touch_serial, opening, completes, range_count;
  uint32_t shared_count, milliseconds, cooperative, cluster;
  const void *ranges, *shared_variables;
} Request;

typedef struct {
  void* library;
  char name[256];
  unsigned arguments;
} Kernel;

typedef struct {
  int kind;  // 0 for a launch, 1 for a copy
  Kernel* kernel;
  unsigned grid[3], block[3], shared, cooperative;
  uint64_t arguments[ARGUMENTS];
  void *to, *from;
  size_t bytes;
} Operation;

static void* simulator;
static FILE* record_file;
static struct {
  uintptr_t start;
  size_t bytes;
} blocks[MOST];
static int block_count, made[4];
static size_t memory_left;
enum { STREAM, EVENT, MODULE, GRAPH };
static struct {
  Operation* operations;
  int count;
} graphs[64], captured;
static int capturing, depth;

#define RECORD(...) (record_file ? fprintf(record_file, __VA_ARGS__) : 0)

static void* in_simulator(const char* name) {
  void* found = dlsym(simulator, name);
  if (!found) fprintf(stderr, "no %s: %s\n", name, dlerror()), exit(70);
  return found;
}

static const char* place(uint64_t address, char* text) {
  for (int i = 0; i < block_count; i++)
    if (address - blocks[i].start < blocks[i].bytes)
      return sprintf(text, "%d+%zu", i + 1, (size_t)(address - blocks[i].start)), text;
  return sprintf(text, "host"), text;
}

// Whether the call of this name is the one that fails.
static int fails(const char* name) {
  static int count;
  const char* wanted = getenv("FAKE_FAIL");
  const size_t length = strlen(name);
  if (!wanted || strncmp(wanted, name, length) || wanted[length] != ' ') return 0;
  return ++count == atoi(wanted + length + 1);
}
#define CALL(name)                                  \
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;    \
  if (fails(name)) return CUDA_ERROR_ILLEGAL_ADDRESS

static CUresult run(const Operation* o) {
  if (o->kind) return memmove(o->to, o->from, o->bytes), CUDA_SUCCESS;
  if (!simulator) return CUDA_SUCCESS;
  char name[300];
  sprintf(name, "graphc_sim_run_%s", o->kernel->name);
  void* (*touch)(void) = (void* (*)(void))dlsym(o->kernel->library, "graphc_sim_touch");
  void* (*dynamic)(void) = (void* (*)(void))dlsym(o->kernel->library, "graphc_sim_dynamic");
  static uint32_t serial;
  touch();
  Request request = {.entry = dlsym(o->kernel->library, name),
                     .packed = o->arguments,
                     .dynamic = dynamic(),
                     .shared_bytes = o->shared,
                     .order = serial % 3,
                     .seed = serial,
                     .touch_serial = ++serial,
                     .opening = 1,
                     .completes = 1,
                     .milliseconds = 120000,
                     .cooperative = o->cooperative,
                     .cluster = 1};
  memcpy(request.grid, o->grid, sizeof request.grid);
  memcpy(request.block, o->block, sizeof request.block);
  int (*launch)(const Request*) = (int (*)(const Request*))in_simulator("graphc_sim_launch");
  if (!launch(&request)) return CUDA_SUCCESS;
  const char* (*findings)(void) = (const char* (*)(void))in_simulator("graphc_sim_findings");
  fprintf(stderr, "%s: %s\n", o->kernel->name, findings() + 36);
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

// Run an operation, or put it into the graph that is being captured.
static CUresult issue(const Operation* o) {
  if (!capturing) return run(o);
  if (captured.count % 256 == 0)
    captured.operations =
        realloc(captured.operations, (captured.count + 256) * sizeof *captured.operations);
  captured.operations[captured.count++] = *o;
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) {
  (void)flags;
  const char *path = getenv("FAKE_RECORD"), *simulated = getenv("FAKE_SIMULATOR");
  const char *devices = getenv("FAKE_DEVICES"), *bytes = getenv("FAKE_MEMORY");
  if (devices && atoi(devices) == 0) return CUDA_ERROR_NO_DEVICE;
  if (path && !record_file) record_file = fopen(path, "w");
  memory_left = bytes ? strtoull(bytes, NULL, 10) : (size_t)1 << 34;
  if (simulated && !simulator) simulator = dlopen(simulated, RTLD_NOW | RTLD_GLOBAL);
  if (simulated && !simulator) fprintf(stderr, "%s\n", dlerror()), exit(70);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return number == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
// As the simulated GPU, which runs eight blocks of a cooperative launch at once.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  (void)device;
  return *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 8 : 0, CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, CUfunction function, int threads,
                                                     size_t shared) {
  (void)function, (void)threads, (void)shared;
  return *count = 1, CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  RECORD("retain %d\n", device);
  return *context = (CUcontext)1, CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  RECORD("release %d\n", device);
  if (record_file) fflush(record_file);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  (void)context;
  return depth++, CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
  return depth--, *context = (CUcontext)1, CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  CALL("priorities");
  return *least = 0, *greatest = -5, CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  CALL("stream_create");
  *stream = (CUstream)(uintptr_t)++made[STREAM];
  RECORD("stream_create %lu flags %u priority %d\n", NUMBER(*stream), flags, priority);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  RECORD("stream_destroy %lu\n", NUMBER(stream));
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  CALL("stream_synchronize");
  RECORD("stream_synchronize %lu\n", NUMBER(stream));
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  CALL("wait");
  (void)flags;
  RECORD("wait %lu event %lu\n", NUMBER(stream), NUMBER(event));
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  CALL("event_create");
  *event = (CUevent)(uintptr_t)++made[EVENT];
  RECORD("event_create %lu flags %u\n", NUMBER(*event), flags);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  RECORD("event_destroy %lu\n", NUMBER(event));
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  CALL("record");
  RECORD("record %lu event %lu\n", NUMBER(stream), NUMBER(event));
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  CALL("mem_alloc");
  if (bytes > memory_left) return CUDA_ERROR_OUT_OF_MEMORY;
  memory_left -= bytes;
  uint64_t (*allocate)(uint64_t) =
      simulator ? (uint64_t (*)(uint64_t))in_simulator("graphc_sim_allocate") : NULL;
  *address = allocate ? allocate(bytes) : (CUdeviceptr)aligned_alloc(256, (bytes + 255) / 256 * 256);
  blocks[block_count].start = *address;
  blocks[block_count++].bytes = bytes;
  RECORD("mem_alloc %zu\n", bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  char text[64];
  RECORD("mem_free %s\n", place(address, text));
  if (!simulator) free((void*)address);
  else ((void (*)(uint64_t))in_simulator("graphc_sim_free"))(address);
  for (int i = 0; i < block_count; i++)
    if (blocks[i].start == address) blocks[i].bytes = 0;
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  CALL("host_alloc");
  (void)flags;
  RECORD("host_alloc %zu\n", bytes);
  return *address = malloc(bytes), CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* address) {
  RECORD("host_free\n");
  return free(address), CUDA_SUCCESS;
}
static CUresult copied(const char* name, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                       CUstream stream) {
  char target[64], source[64];
  RECORD("%s %lu %s %s bytes %zu\n", name, NUMBER(stream), place(to, target), place(from, source),
         bytes);
  const Operation o = {.kind = 1, .to = (void*)to, .from = (void*)from, .bytes = bytes};
  return issue(&o);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CALL("copy_any");
  return copied("copy_any", to, from, bytes, stream);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CALL("copy");
  return copied("copy", to, from, bytes, stream);
}

// The bytes of an ELF file: its table of sections is the last thing in it.
static size_t image_bytes(const void* image) {
  const Elf64_Ehdr* head = image;
  return head->e_shoff + (size_t)head->e_shentsize * head->e_shnum;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  CALL("module_load");
  void* library = NULL;
  ++made[MODULE];
  if (simulator) {
    if (memcmp(image, ELFMAG, SELFMAG)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    char path[] = "/tmp/fake-cuda-XXXXXX";
    const int file = mkstemp(path);
    const size_t bytes = image_bytes(image);
    if (write(file, image, bytes) != (ssize_t)bytes) return CUDA_ERROR_OPERATING_SYSTEM;
    close(file);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), CUDA_ERROR_INVALID_IMAGE;
  }
  RECORD("module_load %d\n", made[MODULE]);
  return *module = library ? library : (CUmodule)(uintptr_t)made[MODULE], CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  RECORD("module_unload\n");
  if (simulator) dlclose(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CALL("get_function");
  Kernel* kernel = calloc(1, sizeof *kernel);
  snprintf(kernel->name, sizeof kernel->name, "%s", name);
  kernel->library = module;
  *function = (CUfunction)kernel;
  if (!simulator) return CUDA_SUCCESS;
  char packed[300];
  sprintf(packed, "graphc_sim_packed_%s", name);
  unsigned (*bytes)(void) = (unsigned (*)(void))dlsym(module, packed);
  if (!bytes) return CUDA_ERROR_NOT_FOUND;
  kernel->arguments = bytes() / 8;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  CALL("function_attribute");
  RECORD("function_attribute %s %d %d\n", ((Kernel*)function)->name, (int)attribute, value);
  return CUDA_SUCCESS;
}
static CUresult launched(const char* kind, Operation* o, CUstream stream, void** parameters) {
  RECORD("%s %lu %s grid %u %u %u block %u %u %u shared %u arguments", kind, NUMBER(stream),
         o->kernel->name, o->grid[0], o->grid[1], o->grid[2], o->block[0], o->block[1], o->block[2],
         o->shared);
  char text[64];
  for (unsigned i = 0; i < o->kernel->arguments; i++) {
    o->arguments[i] = *(uint64_t*)parameters[i];
    RECORD(" %s", place(o->arguments[i], text));
  }
  RECORD("\n");
  return issue(o);
}
#define OPERATION(whole)                                                          \
  Operation o = {.kernel = (Kernel*)function, .shared = shared, .cooperative = whole}; \
  o.grid[0] = gx, o.grid[1] = gy, o.grid[2] = gz;                                 \
  o.block[0] = bx, o.block[1] = by, o.block[2] = bz
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream,
                        void** parameters, void** extra) {
  CALL("launch");
  if (extra) return CUDA_ERROR_INVALID_VALUE;
  OPERATION(0);
  return launched("launch", &o, stream, parameters);
}
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                   unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                   CUstream stream, void** parameters) {
  CALL("cooperative");
  OPERATION(1);
  return launched("cooperative", &o, stream, parameters);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  CALL("begin_capture");
  RECORD("begin_capture %lu mode %d\n", NUMBER(stream), (int)mode);
  captured.operations = NULL;
  return captured.count = 0, capturing = 1, CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  capturing = 0;
  CALL("end_capture");
  graphs[++made[GRAPH]] = captured;
  *graph = (CUgraph)(uintptr_t)made[GRAPH];
  RECORD("end_capture %lu\n", NUMBER(stream));
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                     unsigned long long flags) {
  CALL("graph_instantiate");
  (void)flags;
  return *executable = (CUgraphExec)graph, CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  (void)graph;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec graph) {
  RECORD("graph_destroy %lu\n", NUMBER(graph));
  free(graphs[NUMBER(graph)].operations);
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  CALL("graph_launch");
  RECORD("graph_launch %lu on %lu\n", NUMBER(graph), NUMBER(stream));
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < graphs[NUMBER(graph)].count && !result; i++)
    result = run(&graphs[NUMBER(graph)].operations[i]);
  return result;
}
