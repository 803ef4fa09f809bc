#!/bin/sh
# Builds MODEL for MADE_FOR into the folder build. CXX and CC choose
# the compilers, OUT the folder, CUDA_HOME the toolkit, of which only cuda.h and the stub of the
# driver's library are used; LDFLAGS is for the linker.
#
#     sh build.sh kernels    compiles the kernels again first, by nvcc
set -eu
cd "$(dirname "$0")"
CXX="${CXX:-g++}"
CC="${CC:-gcc}"
OUT="${OUT:-build}"
CUDA_HOME="${CUDA_HOME:-/usr/local/cuda}"
if [ "${1:-}" = kernels ]; then
  for file in kernels/*.cu; do
    name=$(basename "$file" .cu)
    nvcc NVCC_FLAGS -Iinclude "$file" -o "cubins/$name.fatbin"
  done
fi
mkdir -p "$OUT"
$CXX -std=c++20 -Wall -Wextra CXX_FLAGS -I. -Iinclude -I"$CUDA_HOME/include" \
  -c model.cpp -o "$OUT/model.o"
for file in images.S selftest.cWEIGHTS_C; do
  $CC -std=c11 -O2 -g0 -I. -c "$file" -o "$OUT/${file%.*}.o"
done
ar rcs "$OUT/libMODEL.a" "$OUT/model.o" "$OUT/images.o"WEIGHTS_O
$CC "$OUT/selftest.o" "$OUT/libMODEL.a" ${LDFLAGS:-} -L"$CUDA_HOME/lib64/stubs" -lcuda -lm \
  -o "$OUT/MODEL_selftest"
