// fake_lookup.c: what the driver that records (fake_driver.c) says of itself, copies that
// are waited for, the texts of its errors, and how its entry points are found.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define OK CUDA_SUCCESS
const char* fake_record(void);

CUresult cuDriverGetVersion(int* version) { return *version = 13000, OK; }
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, OK;
}

// Copies that are waited for.
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return memcpy((void*)to, from, bytes), OK;
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return memcpy(to, (void*)from, bytes), OK;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_NO_DEVICE         ? "no CUDA-capable device is detected"
          : error == CUDA_ERROR_OUT_OF_MEMORY   ? "out of memory"
          : error == CUDA_ERROR_INVALID_CONTEXT ? "invalid device context"
          : error == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                                : "an error";
  return OK;
}

// Whether a function is a stub: those are weak.
static int is_stub(void* address) {
  Dl_info info;
  const ElfW(Sym)* symbol = NULL;
  dladdr1(address, &info, (void**)&symbol, RTLD_DL_SYMENT);
  return symbol && ELF64_ST_BIND(symbol->st_info) == STB_WEAK;
}

// How cuda-bindings finds entry points: by name, the newest version that is no stub.
CUresult cuGetProcAddress_v2(const char* symbol, void** address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* result) {
  static void* self;
  Dl_info info;
  if (!self && dladdr((void*)fake_record, &info)) self = dlopen(info.dli_fname, RTLD_NOW);
  static const char* const suffixes[] = {"_v4", "_v3", "_v2", ""};
  char name[256];
  *address = NULL;
  for (int i = 0; i < 4; i++) {
    snprintf(name, sizeof name, "%s%s", symbol, suffixes[i]);
    void* found = dlsym(self, name);
    if (found && (!*address || (is_stub(*address) && !is_stub(found)))) *address = found;
  }
  if (result)
    *result = *address ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *address ? OK : CUDA_ERROR_NOT_FOUND;
}
