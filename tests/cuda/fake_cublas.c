// A library in the place of cuBLASLt, for memory of the host: products of float and bfloat16 by
// loops, as cublasLt.h says what they are. An enumerator's number is that of the header.
//
// Every call is checked for what the library would refuse, or would not do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 7, UNSUPPORTED = 15 };
enum { F32 = 0, BF16 = 14, COMPUTE_32F = 68 };
enum { TRANSA = 3, TRANSB = 4, EPILOGUE = 7, BIAS_POINTER = 8 };
enum { RELU = 2, BIAS = 4 };

typedef struct {
  int64_t compute, scale, transposed[2], epilogue;
  const float* bias;
} description;
typedef struct {
  int64_t type, rows, columns, leading, batches, stride;
} layout;
typedef struct {
  uint64_t workspace;
  uint32_t reductions, alignments[4];
} preference;
typedef struct {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} heuristic;

static int proposals = 3;
void fake_proposals(int count) { proposals = count; }

size_t cublasLtGetVersion(void) { return 130203; }
int cublasLtCreate(void** handle) { return *handle = malloc(1), SUCCESS; }

int cublasLtMatmulDescCreate(description** made, int compute, int scale) {
  *made = calloc(1, sizeof(description));
  (*made)->compute = compute, (*made)->scale = scale, (*made)->epilogue = 1;
  return compute == COMPUTE_32F && scale == F32 ? SUCCESS : UNSUPPORTED;
}
int cublasLtMatmulDescSetAttribute(description* x, int attribute, const void* value, size_t size) {
  if (attribute == BIAS_POINTER)
    return memcpy(&x->bias, value, size), size == 8 ? SUCCESS : INVALID;
  if (size != 4) return INVALID;
  const int number = *(const int*)value;
  if (attribute == TRANSA || attribute == TRANSB) x->transposed[attribute - TRANSA] = number;
  else if (attribute == EPILOGUE) x->epilogue = number;
  else return INVALID;
  return SUCCESS;
}
int cublasLtMatmulDescDestroy(description* x) { return free(x), SUCCESS; }

int cublasLtMatrixLayoutCreate(layout** made, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
  *made = malloc(sizeof(layout));
  **made = (layout){type, rows, columns, leading, 1, 0};
  return (type == F32 || type == BF16) && leading >= (int64_t)rows ? SUCCESS : INVALID;
}
int cublasLtMatrixLayoutSetAttribute(layout* x, int attribute, const void* value, size_t size) {
  if (attribute == 5 && size == 4) return x->batches = *(const int*)value, SUCCESS;
  if (attribute == 6 && size == 8) return x->stride = *(const int64_t*)value, SUCCESS;
  return INVALID;
}
int cublasLtMatrixLayoutDestroy(layout* x) { return free(x), SUCCESS; }

int cublasLtMatmulPreferenceCreate(preference** made) {
  return *made = calloc(1, sizeof(preference)), SUCCESS;
}
int cublasLtMatmulPreferenceSetAttribute(preference* x, int attribute, const void* value,
                                         size_t size) {
  if (attribute == 1 && size == 8) return x->workspace = *(const uint64_t*)value, SUCCESS;
  if (attribute == 3 && size == 4) return x->reductions = *(const uint32_t*)value, SUCCESS;
  if (attribute < 5 || attribute > 8 || size != 4) return INVALID;
  return x->alignments[attribute - 5] = *(const uint32_t*)value, SUCCESS;
}
int cublasLtMatmulPreferenceDestroy(preference* x) { return free(x), SUCCESS; }

// An algorithm is its place, the workspace that it was proposed for, and the alignment.
int cublasLtMatmulAlgoGetHeuristic(void* handle, description* x, layout* a, layout* b, layout* c,
                                   layout* d, preference* wanted, int most, heuristic* found,
                                   int* count) {
  if (!handle || !x || !a || !b || c != d) return INVALID;
  if (wanted->reductions & 5) return UNSUPPORTED;  // one that rounds, or one in place
  *count = most < proposals ? most : proposals;
  for (int i = 0; i < *count; i++)
    found[i] = (heuristic){{i, wanted->workspace, wanted->alignments[0]}, wanted->workspace / 2};
  return SUCCESS;
}

static float element(const void* memory, const layout* x, int64_t at) {
  if (x->type == F32) return ((const float*)memory)[at];
  const uint32_t bits = (uint32_t)((const uint16_t*)memory)[at] << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static void store(void* memory, const layout* x, int64_t at, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (x->type == F32) ((float*)memory)[at] = value;
  else ((uint16_t*)memory)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// Of a matrix whose columns run in memory.
static float of(const void* memory, const layout* x, int turned, int64_t batch, int64_t row,
                int64_t column) {
  const int64_t at = turned ? column + row * x->leading : row + column * x->leading;
  return element(memory, x, batch * x->stride + at);
}

int cublasLtMatmul(void* handle, description* x, const float* alpha, const void* a, layout* la,
                   const void* b, layout* lb, const float* beta, const void* c, layout* lc, void* d,
                   layout* ld, const uint64_t* algorithm, void* workspace, size_t room,
                   void* stream) {
  const int ta = x->transposed[0], tb = x->transposed[1];
  const int64_t m = ta ? la->columns : la->rows, k = ta ? la->rows : la->columns;
  const int64_t n = tb ? lb->rows : lb->columns, depth = tb ? lb->columns : lb->rows;
  if (m != ld->rows || n != ld->columns || k != depth || *alpha != 1 || *beta != 0) return INVALID;
  if (la->batches != ld->batches || lb->batches != ld->batches || c != d || lc != ld)
    return INVALID;
  if (room < algorithm[1] || !workspace || !stream) return INVALID;
  const uint64_t places = (uint64_t)a | (uint64_t)b | (uint64_t)d | (uint64_t)workspace;
  if (algorithm[2] == 0 || places % algorithm[2]) return INVALID;
  // On a driver that records, the call is recorded, takes a time, and computes nothing.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void (*recorded)(void*, int) = driver ? dlsym(driver, "fake_product") : NULL;
  if (recorded) return recorded(stream, (int)algorithm[0]), SUCCESS;
  for (int64_t batch = 0; batch < ld->batches; batch++)
    for (int64_t column = 0; column < n; column++)
      for (int64_t row = 0; row < m; row++) {
        float sum = 0;
        for (int64_t i = 0; i < k; i++)
          sum += of(a, la, ta, batch, row, i) * of(b, lb, tb, batch, i, column);
        if (x->epilogue & BIAS) sum += x->bias[row];
        if (x->epilogue & RELU && sum < 0) sum = 0;
        store(d, ld, batch * ld->stride + row + column * ld->leading, sum);
      }
  return SUCCESS;
}
