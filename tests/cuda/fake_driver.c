// A driver library that records the calls it gets. Memory of its devices is memory of the host,
// copies are made at once, kernels are not run. It takes the place of libcuda.so.1 together with a
// stub that has all other entry points.
//
// The record has a line per call: its name and what matters of its arguments. Streams, events,
// modules and graphs are numbered from 1 in the order in which they were made.
//
// Its clock stands but for launches: each takes as many microseconds as the image of its module
// says ("image 2.5"), or one. A graph takes what its launches take together.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK CUDA_SUCCESS
#define LINE 4096

static char* record_text;
static size_t record_length, record_room;
static int devices = 1, failure;
static size_t memory = 1ull << 34, used;
static uintptr_t made[8];
enum { STREAM, EVENT, MODULE, GRAPH };

#define RECORD(...)                                                            \
  do {                                                                         \
    if (record_room - record_length < LINE) {                                  \
      record_room = record_room ? 2 * record_room : 1 << 20;                   \
      record_text = realloc(record_text, record_room);                         \
    }                                                                          \
    record_length += snprintf(record_text + record_length, LINE, __VA_ARGS__); \
  } while (0)
// fake_captures.c.
CUresult capture_begin(CUstream), capture_end(CUstream), capture_forbids(void);
CUresult capture_wait(CUstream, CUevent);
void capture_node(CUstream), capture_record(CUevent, CUstream);
#define OUTSIDE()                                 \
  do {                                            \
    const CUresult forbidden = capture_forbids(); \
    if (forbidden) return forbidden;              \
  } while (0)
#define NEW(type, kind) ((type)(++made[kind]))
#define NUMBER(handle) ((unsigned long)(uintptr_t)(handle))

// For tests: what was recorded since the last `fake_clear`; the machine to be.
const char* fake_record(void) {
  RECORD("%s", "");
  return record_text;
}
void fake_clear(void) {
  record_length = 0;
  RECORD("%s", "");
}
void fake_note(const char* line) { RECORD("%s", line); }
void fake_machine(int gpus, size_t bytes) {
  devices = gpus;
  memory = bytes;
}

// The clock, in microseconds; what modules, events and graphs keep of it, by their numbers.
#define MOST 16384
static double now, module_launch[MOST], event_at[MOST], graph_takes[MOST];
static int capturing;
static double captured;
static void spend(double microseconds) { *(capturing ? &captured : &now) += microseconds; }

// The error of the next launch, of a kernel or a graph.
void fake_fail(int error) { failure = error; }
// Whether nodes of graphs take no priority, and graphs no other addresses.
static int refuses;
void fake_refuse(int yes) { refuses = yes; }
static CUresult launched(void) {
  const int error = failure;
  failure = 0;
  return error;
}

// Contexts: one per device, a stack per thread. Without one most calls fail.
static __thread CUcontext stack[64];
static __thread int depth;
int fake_depth(void) { return depth; }
#define CURRENT() \
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT

static CUcontext context_of(CUdevice device) { return (CUcontext)(uintptr_t)(0xC0 + device); }

CUresult cuInit(unsigned flags) { return devices ? OK : CUDA_ERROR_NO_DEVICE; }
CUresult cuDeviceGetCount(int* count) { return *count = devices, OK; }
CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return number < devices ? OK : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return snprintf(name, length, "a driver that records"), OK;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                       : 1024;
  return OK;
}
CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return *major = 9, *minor = 0, OK;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) { return *bytes = memory, OK; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  RECORD("retain_primary_context %d\n", device);
  return *context = context_of(device), OK;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return OK; }
CUresult cuCtxPushCurrent_v2(CUcontext context) { return stack[depth++] = context, OK; }
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  CURRENT();
  return *context = stack[--depth], OK;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  return *context = depth ? stack[depth - 1] : NULL, OK;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  CURRENT();
  return *device = (int)((uintptr_t)stack[depth - 1] - 0xC0), OK;
}
CUresult cuCtxSynchronize(void) {
  CURRENT();
  RECORD("context_synchronize\n");
  return capture_forbids();
}

// Streams and events. Nothing is pending but where a test says so.
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  CURRENT();
  *stream = NEW(CUstream, STREAM);
  RECORD("stream_create %lu flags %u\n", NUMBER(*stream), flags);
  return OK;
}
CUresult cuStreamDestroy_v2(CUstream stream) { return OK; }
CUresult cuStreamQuery(CUstream stream) { return OK; }
CUresult cuStreamSynchronize(CUstream stream) {
  CURRENT();
  RECORD("stream_synchronize %lu\n", NUMBER(stream));
  return capture_forbids();
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  CURRENT();
  RECORD("wait %lu event %lu\n", NUMBER(stream), NUMBER(event));
  return capture_wait(stream, event);
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  CURRENT();
  *event = NEW(CUevent, EVENT);
  RECORD("event_create %lu flags %u\n", NUMBER(*event), flags);
  return OK;
}
CUresult cuEventDestroy_v2(CUevent event) { return OK; }
// For tests: whether nothing that is asked for has ended.
static int pending;
void fake_pending(int yes) { pending = yes; }
CUresult cuEventQuery(CUevent event) {
  const CUresult forbidden = capture_forbids();
  return forbidden ? forbidden : pending ? CUDA_ERROR_NOT_READY : OK;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  CURRENT();
  RECORD("record %lu event %lu\n", NUMBER(stream), NUMBER(event));
  event_at[NUMBER(event) % MOST] = now;
  capture_record(event, stream);
  return OK;
}
CUresult cuEventSynchronize(CUevent event) {
  CURRENT();
  RECORD("event_synchronize %lu\n", NUMBER(event));
  return capture_forbids();
}
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  const double spent = event_at[NUMBER(end) % MOST] - event_at[NUMBER(start) % MOST];
  return *milliseconds = (float)(spent / 1000), OK;
}

// Memory. A block begins with its size.
#define HEAD 512
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  CURRENT();
  RECORD("mem_alloc %zu\n", bytes);
  OUTSIDE();
  void* block;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > memory - used || posix_memalign(&block, HEAD, bytes + HEAD))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *(size_t*)block = bytes;
  used += bytes;
  return *address = (CUdeviceptr)block + HEAD, OK;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  CURRENT();
  void* block = (void*)(address - HEAD);
  RECORD("mem_free %zu\n", *(size_t*)block);
  OUTSIDE();
  used -= *(size_t*)block;
  return free(block), OK;
}
CUresult cuMemGetInfo_v2(size_t* available, size_t* total) {
  CURRENT();
  return *available = memory - used, *total = memory, OK;
}
CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  CURRENT();
  RECORD("host_alloc %zu\n", bytes);
  OUTSIDE();
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return posix_memalign(address, 4096, bytes) ? CUDA_ERROR_OUT_OF_MEMORY : OK;
}
CUresult cuMemFreeHost(void* address) { return free(address), OK; }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  CURRENT();
  RECORD("copy_to_device %lu bytes %zu\n", NUMBER(stream), bytes);
  capture_node(stream);
  return memcpy((void*)to, from, bytes), OK;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CURRENT();
  RECORD("copy_to_host %lu bytes %zu\n", NUMBER(stream), bytes);
  capture_node(stream);
  return memcpy(to, (void*)from, bytes), OK;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CURRENT();
  RECORD("copy %lu bytes %zu\n", NUMBER(stream), bytes);
  capture_node(stream);
  return memcpy((void*)to, (void*)from, bytes), OK;
}

// Modules and launches. A function is its name, before which stands what a launch of it takes.
static double takes(CUfunction function) { return ((double*)function)[-1]; }
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count,
                            CUjit_option* options, void** values) {
  CURRENT();
  *module = NEW(CUmodule, MODULE);
  RECORD("module_load %lu\n", NUMBER(*module));
  OUTSIDE();
  double* launch = &module_launch[NUMBER(*module) % MOST];
  if (sscanf(image, "image %lf", launch) != 1) *launch = 1;
  return OK;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}
CUresult cuModuleUnload(CUmodule module) {
  RECORD("module_unload %lu\n", NUMBER(module));
  return OK;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  double* made = malloc(sizeof(double) + strlen(name) + 1);
  *made = module_launch[NUMBER(module) % MOST];
  return *function = (CUfunction)strcpy((char*)(made + 1), name), OK;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return *value = 1024, OK;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  RECORD("function_attribute %s %d %d\n", (char*)function, (int)attribute, value);
  return OK;
}
static uintptr_t node;  // of a graph: the launches since a capture began, from 1
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream,
                        void** parameters, void** extra) {
  CURRENT();
  const size_t bytes = extra ? *(size_t*)extra[3] : 0;
  const uint64_t* words = extra ? extra[1] : NULL;
  RECORD("launch %lu %s grid %u %u %u block %u %u %u shared %u arguments", NUMBER(stream),
         (char*)function, gx, gy, gz, bx, by, bz, shared);
  for (size_t i = 0; i < bytes / 8; i++) RECORD(" %llu", (unsigned long long)words[i]);
  RECORD("\n");
  node++;
  capture_node(stream);
  spend(takes(function));
  return gx * gy * gz && bx * by * bz ? launched() : CUDA_ERROR_INVALID_VALUE;
}
// Of a launch by attributes: all of them, and the first argument.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  CURRENT();
  RECORD("launch_ex %lu %s grid %u %u %u block %u %u %u shared %u", NUMBER(config->hStream),
         (char*)function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
         config->blockDimY, config->blockDimZ, config->sharedMemBytes);
  for (unsigned i = 0; i < config->numAttrs; i++)
    RECORD(" attribute %d %d", (int)config->attrs[i].id,
           config->attrs[i].value.programmaticStreamSerializationAllowed);
  RECORD(" argument %llu\n", *(unsigned long long*)parameters[0]);
  node++;
  capture_node(config->hStream);
  spend(takes(function));
  return launched();
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t shared) {
  CURRENT();
  RECORD("resident %s threads %d shared %zu\n", (char*)function, threads, shared);
  return *blocks = 2, OK;
}
// Of the arguments only the first and the second are recorded: how many there are is not said.
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                   unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                   CUstream stream, void** parameters) {
  CURRENT();
  RECORD("cooperative %lu %s grid %u %u %u block %u %u %u shared %u arguments %llu %llu\n",
         NUMBER(stream), (char*)function, gx, gy, gz, bx, by, bz, shared,
         *(unsigned long long*)parameters[0], *(unsigned long long*)parameters[1]);
  node++;
  capture_node(stream);
  spend(takes(function));
  return launched();
}

// A product of fake_cublas.c; those of its second algorithm take half as long.
static double product_takes = 1;
void fake_product_takes(double microseconds) { product_takes = microseconds; }
void fake_product(void* stream, int algorithm) {
  RECORD("product %lu algorithm %d\n", NUMBER(stream), algorithm);
  capture_node(stream);
  node++;
  spend(algorithm == 1 ? product_takes / 2 : product_takes);
}

// A convolution of fake_cudnn.c, by one of its engines.
void fake_convolution(void* stream, int engine) {
  RECORD("convolution %lu engine %d\n", NUMBER(stream), engine);
  capture_node(stream);
  node++;
  spend(engine == 3 ? product_takes / 2 : product_takes);
}

// Graphs.
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  CURRENT();
  RECORD("begin_capture %lu mode %d\n", NUMBER(stream), (int)mode);
  node = 0;
  capturing = 1, captured = 0;
  return capture_begin(stream);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** nodes,
                                   const CUgraphEdgeData** edges, size_t* count) {
  static CUgraphNode last;
  static CUgraphEdgeData edge;
  last = (CUgraphNode)node;
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id) *id = 1;
  if (graph) *graph = NULL;
  if (nodes) *nodes = &last;
  if (edges) *edges = &edge;
  if (count) *count = 1;
  return OK;
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue* value) {
  if (attribute != CU_LAUNCH_ATTRIBUTE_PRIORITY || refuses) return CUDA_ERROR_INVALID_VALUE;
  RECORD("priority %d node %lu\n", value->priority, NUMBER(node));
  return OK;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  CURRENT();
  RECORD("end_capture %lu\n", NUMBER(stream));
  *graph = NEW(CUgraph, GRAPH);
  graph_takes[NUMBER(*graph) % MOST] = captured;
  capturing = 0;
  return capture_end(stream);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                     unsigned long long flags) {
  CURRENT();
  RECORD("graph_instantiate %lu\n", NUMBER(graph));
  OUTSIDE();
  return *executable = (CUgraphExec)graph, OK;
}
CUresult cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph,
                              CUgraphExecUpdateResultInfo* info) {
  CURRENT();
  RECORD("graph_update %lu by %lu\n", NUMBER(executable), NUMBER(graph));
  if (refuses) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  graph_takes[NUMBER(executable) % MOST] = graph_takes[NUMBER(graph) % MOST];
  return info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS, OK;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  CURRENT();
  RECORD("graph_launch %lu on %lu\n", NUMBER(executable), NUMBER(stream));
  OUTSIDE();  // a launch becomes a node, which a capture of the runtime's own never wants
  spend(graph_takes[NUMBER(executable) % MOST]);
  return launched();
}
CUresult cuGraphDestroy(CUgraph graph) { return OK; }
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  RECORD("graph_destroy %lu\n", NUMBER(executable));
  return OK;
}
