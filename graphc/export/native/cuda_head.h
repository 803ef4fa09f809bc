/* NAME: WHAT, for TITLE. Made by graphc MADE_BY.

   Memory is allocated when a model begins: nothing after that. A model must not be used by two
   threads at once; several models may. README.md has an example. */
#ifndef UPPER_H
#define UPPER_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of memory that a model takes on the GPU: for inputs, outputs and work, and for the state.
   Constants take what the weights have behind the state. */
#define UPPER_ARENA_BYTES SIZE_OF_ARENA
#define UPPER_DEVICE_STATE_BYTES SIZE_ON_GPU
/* Bytes of a saved state, the same on every target, and of the file NAME.weights. */
#define UPPER_STATE_BYTES SIZE_OF_STATE
#define UPPER_WEIGHTS_BYTES SIZE_OF_WEIGHTS

/* What functions return. */
enum {
ALL_ERRORS
};

typedef struct NAME {
  void* player;             /* null: the model has not begun */
  uint64_t state, constants; /* addresses on the GPU */
} NAME;

/* A model on the GPU of this number, from 0 on, with the weights of a file or array of `size` bytes,
   which are copied. It uses the device's primary context, as CUDA's runtime and PyTorch do, and
   makes it current during calls alone. On an error the model has not begun. */
int NAME_init(NAME* model, int gpu, const void* weights, size_t size);
/* End it, and free its memory. */
void NAME_close(NAME* model);
/* The CUresult of the last call that returned UPPER_ERROR_DRIVER or _DEVICE or _MEMORY. What a step
   updates may be lost with such an error: restore a state. */
int NAME_driver_error(void);

/* The state, UPPER_STATE_BYTES bytes to write to a file, with its checksum; null on an error. It is
   that of the last call until the next NAME_save. */
const void* NAME_save(NAME* model);
/* Take the state that was saved by this program on any machine, or that of the weights. On an error
   the state is as before, unless the driver reports it. */
int NAME_restore(NAME* model, const void* saved, size_t size);

/* Copy between the host and the GPU: state, such as a learning rate, by its address. */
int NAME_read(NAME* model, void* to, uint64_t from, size_t bytes);
int NAME_write(NAME* model, uint64_t to, const void* from, size_t bytes);

/* Inputs and outputs of calls may lie on the host or on the GPU. A call returns when the outputs
   are there. */
