"""The README of an export for GPUs."""

from __future__ import annotations

from graphc.export.cuda.header import CudaModule
from graphc.export.readme import function_table


def readme_text(module: CudaModule) -> str:
    """Return README.md."""
    name, upper, memory = module.name, module.upper, module.memory
    functions = "\n".join(function_table(function) for function in module.functions)
    state = "\n".join(
        f"| `{p.item.name}` | `{p.item.type}` | {p.item.array.nbytes} |"
        for p in module.device.pieces
    )
    constants = ", and constants" if memory.constants.size else ""
    denormals = "count as zeros" if module.flush else "are kept"
    return f"""# {name}

Made by graphc {module.version} for {module.title}: machine code where the name begins with `sm_`,
PTX for newer GPUs where it begins with `compute_`. It needs CUDA's driver, `libcuda.so.1`, and no
other library.

## Use

{_example(module)}

Functions return {upper}_OK (0) or an error, which `{name}.h` explains. A model takes this memory on
the GPU when it begins:

| memory | bytes | |
| --- | --- | --- |
| arena | {memory.arena} | inputs, outputs and work |
| state | {module.device.state} | `{name}_save` and `{name}_restore` copy it from and to the host |
| constants | {memory.constants.size} | |

`{name}.weights` has {module.weights_bytes} bytes: the initial state{constants}. A saved state has
{memory.state.size}, the same on every target of graphc. Denormals {denormals} in kernels.

The first call of a function issues its launches one by one and captures them; later calls launch
the graph. Inputs and outputs may lie on the host, where page-locked memory is copied fastest, or on
the GPU.

{functions}

## State

| value | type | bytes |
| --- | --- | --- |
{state}

## Build

    sh build.sh

takes `cuda.h` and the stub of `libcuda` of a toolkit in `CUDA_HOME`, and the compiled kernels in
`cubins/`; `sh build.sh kernels` compiles them again, by nvcc. Or with CMake: `cmake -B build &&
cmake --build build`, and link `{name}`. `build/{name}_selftest` checks the results on the GPU, and
that the same calls give the same bits again.
"""


def _example(module: CudaModule) -> str:
    """An example in C."""
    name, function = module.name, module.functions[0]
    arrays = "\n".join(
        f"static {p.c_type} {p.symbol}[{max(1, p.type.size)}];"
        for p in (*function.inputs, *function.outputs)
    )
    fields = {side: ", ".join(p.symbol for p in ports) or "0" for side, ports in function.sides}
    return f"""```c
#include "{name}.h"

{arrays}

int run(const void* weights, size_t size) {{
  {name} model;
  const {function.symbol}_inputs inputs = {{{fields["inputs"]}}};
  const {function.symbol}_outputs outputs = {{{fields["outputs"]}}};
  int error = {name}_init(&model, 0, weights, size);
  if (error) return error;
  error = {function.symbol}(&model, &inputs, &outputs);
  {name}_close(&model);
  return error;
}}
```"""
