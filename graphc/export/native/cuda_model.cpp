// NAME: the plan as a list of calls of the player, for TITLE. Made by graphc MADE_BY.
#include "NAME.h"

#include <new>

#include "graphc/cuda_player.h"
#include "graphc/state.h"

IMAGES

namespace {

struct Plan {
  TABLES
};

using Gpu = Player<Plan>;

// What a model consists of on the host.
struct Host {
  Gpu gpu;
  alignas(64) unsigned char state[UPPER_STATE_BYTES];
};

const unsigned char state_digest[32] = STATE_DIGEST;
CONSTANTS_DIGEST
thread_local CUresult last_error = CUDA_SUCCESS;

Gpu& gpu_of(NAME* model) { return ((Host*)model->player)->gpu; }

int code(CUresult error) {
  if (error != CUDA_SUCCESS) last_error = error;
  switch (error) {
    case CUDA_SUCCESS: return UPPER_OK;
    case CUDA_ERROR_OUT_OF_MEMORY: return UPPER_ERROR_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: return UPPER_ERROR_DEVICE;
    default: return UPPER_ERROR_DRIVER;
  }
}

int written(Gpu& gpu, CUdeviceptr to, const void* from, size_t bytes) {
  {
    const Gpu::Entered entered(gpu);
    gpu.copy_to(to, from, bytes);
    gpu.finish();
  }
  return code(gpu.error());
}

int examined(const unsigned char* block, size_t size, uint32_t kind, const unsigned char* digest,
             size_t bytes) {
  switch (examine(block, size, kind, digest, bytes)) {
    case good: return UPPER_OK;
    case too_short: return UPPER_ERROR_SIZE;
    case no_block: return UPPER_ERROR_FORMAT;
    case other_program: return UPPER_ERROR_PROGRAM;
    case damaged: return UPPER_ERROR_CHECKSUM;
  }
  return UPPER_ERROR_FORMAT;
}

PLAYS
}  // namespace

int NAME_init(NAME* model, int gpu, const void* weights, size_t size) {
  if (!model || !weights) return UPPER_ERROR_NULL;
  model->player = nullptr;
  const int intact = examined((const unsigned char*)weights, size, STATE_KIND, state_digest,
                              UPPER_STATE_BYTES);
  if (intact != UPPER_OK) return intact;
CHECK_CONSTANTS  void* memory = nullptr;
  if (posix_memalign(&memory, 64, sizeof(Host))) return UPPER_ERROR_MEMORY;
  Host& host = *new (memory) Host{};
  host.gpu.open(gpu, UPPER_ARENA_BYTES, CONSTANTS_BYTES);
  int error = code(host.gpu.error());
  if (error == UPPER_OK && CONSTANTS_BYTES)
    error = written(host.gpu, host.gpu.constants(), CONSTANTS_FROM, CONSTANTS_BYTES);
  if (error == UPPER_OK) {
    model->player = memory;
    model->state = host.gpu.state();
    model->constants = host.gpu.constants();
    error = NAME_restore(model, weights, size);
  }
  if (error != UPPER_OK) {
    model->player = memory;
    NAME_close(model);
  }
  return error;
}

void NAME_close(NAME* model) {
  if (!model || !model->player) return;
  gpu_of(model).close();
  free(model->player);
  model->player = nullptr;
}

int NAME_driver_error(void) { return (int)last_error; }

const void* NAME_save(NAME* model) {
  if (!model || !model->player) return nullptr;
  Host& host = *(Host*)model->player;
  {
    const Gpu::Entered entered(host.gpu);
    host.gpu.read_state(host.state);
  }
  if (code(host.gpu.error()) != UPPER_OK) return nullptr;
  seal(host.state, UPPER_STATE_BYTES);
  return host.state;
}

int NAME_restore(NAME* model, const void* saved, size_t size) {
  if (!model || !model->player || !saved) return UPPER_ERROR_NULL;
  const int found = examined((const unsigned char*)saved, size, STATE_KIND, state_digest,
                             UPPER_STATE_BYTES);
  if (found != UPPER_OK) return found;
  Host& host = *(Host*)model->player;
  if (saved != host.state) __builtin_memcpy(host.state, saved, UPPER_STATE_BYTES);
  {
    const Gpu::Entered entered(host.gpu);
    host.gpu.write_state(host.state);
  }
  return code(host.gpu.error());
}

int NAME_read(NAME* model, void* to, uint64_t from, size_t bytes) {
  if (!model || !model->player || !to) return UPPER_ERROR_NULL;
  Gpu& gpu = gpu_of(model);
  {
    const Gpu::Entered entered(gpu);
    gpu.copy_from(to, (CUdeviceptr)from, bytes);
    gpu.finish();
  }
  return code(gpu.error());
}

int NAME_write(NAME* model, uint64_t to, const void* from, size_t bytes) {
  if (!model || !model->player || !from) return UPPER_ERROR_NULL;
  return written(gpu_of(model), (CUdeviceptr)to, from, bytes);
}

RUNS
