// fake_maps.c: cuTensorMapEncodeTiled of the driver that records (fake_driver.c). What it makes begins
// with the address that it was given.
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void fake_note(const char* line);

static CUresult answer;
void fake_map_answer(int error) { answer = (CUresult)error; }

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* sizes, const cuuint64_t* steps,
                                const cuuint32_t* box, const cuuint32_t* each,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  char line[512];
  snprintf(line, sizeof line,
           "tensor_map aligned %d type %d rank %u address %llu sizes %llu %llu step %llu box %u %u "
           "each %u %u interleave %d swizzle %d promotion %d fill %d\n",
           (uintptr_t)map % 64 == 0, (int)type, rank, (unsigned long long)(uintptr_t)address,
           (unsigned long long)sizes[0], (unsigned long long)sizes[1], (unsigned long long)steps[0],
           box[0], box[1], each[0], each[1], (int)interleave, (int)swizzle, (int)promotion,
           (int)fill);
  fake_note(line);
  memset(map, 0, sizeof *map);
  memcpy(map, &address, sizeof address);
  return answer;
}
