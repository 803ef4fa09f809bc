"""Files of an export that build it: CMake's, and weights as a C array."""

from __future__ import annotations

from graphc.export.header import Exported, Module
from graphc.export.names import elements

FLAGS = (
    "-std=c++20",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-ffunction-sections",
    "-g0",
    "-w",
)
"""What C++ files must be compiled with; the first four and -fwrapv decide the bits of results."""


def sources(module: Module) -> list[str]:
    """Return the names of the C++ files."""
    units = [f"kernels_{n}.cpp" for n in range(len(module.kernels.units()))]
    return ["model.cpp", *units]


def defines(module: Module) -> list[str]:
    """Return the macros that C++ files must be compiled with."""
    flush = ["-DGRAPHC_FLUSH"] if module.flush else []
    return [f"-DGRAPHC_LANES={module.machine.lanes}", *flush]


def cmake_text(module: Module) -> str:
    """Return CMakeLists.txt."""
    name, machine = module.name, module.machine
    flags = " ".join((*FLAGS[1:], *machine.flags))
    macros = " ".join(defines(module))
    code = " weights.c" if module.weights_in_code else ""
    threads = (
        f"\nfind_package(Threads REQUIRED)\ntarget_link_libraries({name} PUBLIC Threads::Threads)"
        if module.threads
        else ""
    )
    test = (
        f"""
add_executable({name}_selftest selftest.c)
target_link_libraries({name}_selftest PRIVATE {name})
set_target_properties({name}_selftest PROPERTIES C_STANDARD 11 LINKER_LANGUAGE C)
enable_testing()
add_test(NAME {name}_selftest COMMAND {name}_selftest ${{CMAKE_CURRENT_SOURCE_DIR}}/{name}.weights)
"""
        if machine.hosted
        else ""
    )
    return f"""# {name}: made by graphc {module.version} for {machine.name}.
cmake_minimum_required(VERSION 3.16)
project({name} C CXX)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "")  # the flags below decide the bits of results

add_library({name} STATIC {" ".join(sources(module))}{code})
set_target_properties({name} PROPERTIES CXX_STANDARD 20 CXX_EXTENSIONS OFF)
target_include_directories({name} PUBLIC . PRIVATE include)
target_compile_options({name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:{";".join(flags.split())}>)
target_compile_definitions({name} PRIVATE {macros.replace("-D", "")}){threads}
{test}"""


def weights_text(module: Exported, weights: bytes) -> str:
    """Return weights.c, an array of the bytes of the weights' file."""
    return f"""/* The bytes of {module.name}.weights. */
_Alignas(64) const unsigned char {module.name}_weights[{len(weights)}] = {{
    {elements(weights)}}};
"""


def script_text(module: Module) -> str:
    """Return build.sh."""
    machine, name = module.machine, module.name
    gcc = machine.compiler.replace("g++", "gcc")
    with_zig = machine.compiler not in ("g++", "aarch64-linux-gnu-g++")
    default = "python -m ziglang c++" if with_zig else machine.compiler
    default_c = "python -m ziglang cc" if with_zig else gcc
    fused = fused_zig = ""
    if machine.name == "wasm32":
        fused = ' FUSED="-mrelaxed-simd"'
        fused_zig = f' FUSED="{machine.zig_flags[0]}+relaxed_simd"'
    return f"""#!/bin/sh
# Builds {name} for {machine.name} into the folder build. CXX and CC choose the compilers,
# OUT the folder; LDFLAGS is for the linker. The ziglang package of Python has compilers for
# all targets:
#
#     CXX="python -m ziglang c++" CC="python -m ziglang cc" sh build.sh
set -eu
cd "$(dirname "$0")"
CXX="${{CXX:-{default}}}"
CC="${{CC:-{default_c}}}"
OUT="${{OUT:-build}}"
case "$CXX" in
  *zig*) MACHINE="-target {machine.zig} {" ".join(machine.zig_flags)}"{fused_zig} ;;
  *) MACHINE="{" ".join(machine.flags)}"{fused} ;;
esac
# These flags decide the bits of results: products and sums are fused only where the text says so.
FLAGS="{" ".join((*FLAGS, *defines(module)))}"
mkdir -p "$OUT"
for file in {" ".join(sources(module))}; do
  $CXX $MACHINE $FLAGS -I. -Iinclude -c "$file" -o "$OUT/${{file%.cpp}}.o"
done
{_link(module)}"""


_C = "$CC $MACHINE -std=c11 -O2 -g0 -ffunction-sections -I."
_WASM_LINK = "-mexec-model=reactor -Wl,--no-entry -Wl,-z,stack-size=1048576 -s"


def _link(module: Module) -> str:
    """The end of build.sh."""
    name, machine = module.name, module.machine
    objects = " ".join(f'"$OUT/{source[:-4]}.o"' for source in sources(module))
    if machine.name == "wasm32":
        fused = objects.replace(".o", ".fma.o")
        return f"""{_C} -c wasm.c -o "$OUT/wasm.o"
$CC $MACHINE {_WASM_LINK} {objects} "$OUT/wasm.o" \\
  -o "$OUT/{name}.wasm"
# Again for engines whose relaxed SIMD fuses multiply-adds: the same bits, many times as fast.
for file in {" ".join(sources(module))}; do
  $CXX $MACHINE $FUSED $FLAGS -I. -Iinclude -c "$file" -o "$OUT/${{file%.cpp}}.fma.o"
done
$CC $MACHINE $FUSED {_WASM_LINK} {fused} "$OUT/wasm.o" \\
  -o "$OUT/{name}.fma.wasm"
"""
    if not machine.hosted:
        return f"""# MAIN is the whole path of a C file, whose main replaces the self-test's.
MAIN="${{MAIN:-selftest_main.c}}"
case "$MAIN" in selftest_main.c) PROGRAM={name}_selftest ;; *) PROGRAM={name} ;; esac
for file in selftest.c weights.c cortex_m.c "$MAIN"; do
  {_C} -DSELFTEST_LIBRARY -c "$file" -o "$OUT/$(basename "$file" .c).o"
done
$CC $MACHINE -nostartfiles -Wl,-e,reset -Wl,--gc-sections -s -T cortex_m.ld {objects} \\
  "$OUT/selftest.o" "$OUT/weights.o" "$OUT/cortex_m.o" \\
  "$OUT/$(basename "$MAIN" .c).o" -o "$OUT/$PROGRAM.elf"
"""
    pthread = " -pthread" if module.threads else ""
    weights = ""
    if module.weights_in_code:
        weights = f'{_C} -c weights.c -o "$OUT/weights.o"\n'
        objects += ' "$OUT/weights.o"'
    return f"""{weights}ar rcs "$OUT/lib{name}.a" {objects}
{_C} ${{LDFLAGS:-}} selftest.c {objects} -Wl,--gc-sections -s{pthread} -lm \\
  -o "$OUT/{name}_selftest"
"""
