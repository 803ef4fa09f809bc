"""The README of an export."""

from __future__ import annotations

from graphc.export.header import Module
from graphc.export.interface import Function
from graphc.export.names import described


def readme_text(module: Module) -> str:
    """Return README.md."""
    name, upper, memory, machine = module.name, module.upper, module.memory, module.machine
    functions = "\n".join(_function(module, function) for function in module.functions)
    state = "\n".join(f"| `{i.name}` | `{i.type}` | {i.array.nbytes} |" for i in memory.state.items)
    denormals = (
        "count as zeros, as in graphc by default"
        if module.flush
        else "are kept, as in graphc with `GRAPHC_DENORMALS=keep`"
    )
    return f"""# {name}

Made by graphc {module.version} for {machine.name}: {machine.title}. It needs no other library than
the C library, from which it takes `memcpy` and `memset`{_libm(module)}.

## Use

```c
{_example(module)}```

Functions return {upper}_OK (0) or an error, which `{name}.h` explains. All memory is yours:

| memory | bytes | |
| --- | --- | --- |
| arena | {memory.arena} | holds nothing between calls; models may share it |
| state | {memory.state.size} | `{name}_save` and `{name}_restore` write and read it |
| weights | {module.weights_bytes} | `{name}.weights`, the initial state{_constants(module)} |

That is all: nothing is allocated. Denormals {denormals}.

{functions}

## State

| value | type | bytes |
| --- | --- | --- |
{state}

## Build

    sh build.sh

{_cmake(module)}
Results have the same bits on every target of graphc, if compiled with these flags. `selftest.c`
checks it.
"""


def _function(module: Module, function: Function) -> str:
    rows = [
        f"| {kind} | `{port.symbol}` | `{described(port.type)}` |"
        for kind, ports in (("input", function.inputs), ("output", function.outputs))
        for port in ports
    ]
    return "\n".join(
        [f"## {function.symbol}", "", "| | field | type |", "| --- | --- | --- |", *rows, ""]
    )


def _cmake(module: Module) -> str:
    if not module.machine.hosted:
        return "It takes the C++ compiler of the ziglang package, unless CXX and CC name others."
    chosen = f" -DCMAKE_CXX_COMPILER={module.machine.compiler}"
    chosen = "" if module.machine.compiler == "g++" else chosen
    command = f"`cmake -B build{chosen} && cmake --build build`"
    return f"Or with CMake: {command}, and link `{module.name}`."


def _libm(module: Module) -> str:
    return ", and functions such as `exp` if the program computes with `float64`"


def _constants(module: Module) -> str:
    return ", and constants, which are read there" if module.memory.constants.size else ""


def _example(module: Module) -> str:
    name, upper, function = module.name, module.upper, module.functions[0]
    arrays = "\n".join(
        f"static {p.c_type} {p.symbol}[{max(1, p.type.size)}];"
        for p in (*function.inputs, *function.outputs)
    )
    fields = {
        side: ", ".join(p.symbol for p in ports) or "0"
        for side, ports in (("inputs", function.inputs), ("outputs", function.outputs))
    }
    return f"""#include "{name}.h"

_Alignas(64) static unsigned char arena[{upper}_ARENA_BYTES], state[{upper}_STATE_BYTES];
{arrays}

int run(const void* weights, size_t size) {{
  {name} model;
  const {function.symbol}_inputs inputs = {{{fields["inputs"]}}};
  const {function.symbol}_outputs outputs = {{{fields["outputs"]}}};
  int error = {name}_init(&model, arena, state, weights, size);
  return error ? error : {function.symbol}(&model, &inputs, &outputs);
}}
"""
