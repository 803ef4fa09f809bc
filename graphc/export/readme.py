"""The README of an export."""

from __future__ import annotations

from graphc.export.header import Module
from graphc.export.interface import Function
from graphc.export.names import described


def readme_text(module: Module) -> str:
    """Return README.md."""
    name, upper, memory, machine = module.name, module.upper, module.memory, module.machine
    functions = "\n".join(function_table(function) for function in module.functions)
    state = "\n".join(f"| `{i.name}` | `{i.type}` | {i.array.nbytes} |" for i in memory.state.items)
    denormals = (
        "count as zeros, as in graphc by default"
        if module.flush
        else "are kept, as in graphc with `GRAPHC_DENORMALS=keep`"
    )
    return f"""# {name}

Made by graphc {module.version} for {machine.name}: {machine.title}.
{_needs(module)}

## Use

{_example(module)}

Functions return {upper}_OK (0) or an error, which `{name}.h` explains. All memory is yours:

| memory | bytes | |
| --- | --- | --- |
| arena | {memory.arena} | holds nothing between calls; models may share it |
| state | {memory.state.size} | `{name}_save` and `{name}_restore` write and read it |
| weights | {module.weights_bytes} | `{name}.weights`, the initial state{_constants(module)} |

That is all, besides the stack: nothing is allocated. Denormals {denormals}.

{functions}

## State

| value | type | bytes |
| --- | --- | --- |
{state}

## Build

    sh build.sh

{_cmake(module)}
The flags in `build.sh` decide the bits of results, which are the same on every target of graphc.
{_check(module)}
"""


def function_table(function: Function) -> str:
    """Return a function's inputs and outputs as a table with its heading."""
    rows = [
        f"| {side.removesuffix('s')} | `{port.symbol}` | `{described(port.type)}` |"
        for side, ports in function.sides
        for port in ports
    ]
    return "\n".join(
        [f"## {function.symbol}", "", "| | field | type |", "| --- | --- | --- |", *rows, ""]
    )


def _needs(module: Module) -> str:
    """What it takes from elsewhere."""
    if module.machine.name == "wasm32":
        return "The modules import nothing."
    return (
        "It takes `memcpy` and `memset` from the C library, and functions such as `exp` if the "
        "program computes with `float64`; it needs no other library."
    )


def _cmake(module: Module) -> str:
    if not module.machine.hosted:
        return "It takes the C++ compiler of the ziglang package, unless CXX and CC name others."
    chosen = f" -DCMAKE_CXX_COMPILER={module.machine.compiler}"
    chosen = "" if module.machine.compiler == "g++" else chosen
    command = f"`cmake -B build{chosen} && cmake --build build`"
    return f"Or with CMake: {command}, and link `{module.name}`."


def _check(module: Module) -> str:
    name = module.name
    if module.machine.name == "wasm32":
        return "`node selftest.mjs` checks them."
    if not module.machine.hosted:
        return (
            "`cortex_m.c` and `cortex_m.ld` start the self-test on QEMU's board, which checks "
            "them:\n\n"
            "    qemu-system-arm -M mps2-an500 -nographic -semihosting -kernel "
            f"build/{name}_selftest.elf\n\n"
            f"`MAIN=/path/of/main.c sh build.sh` builds `build/{name}.elf`, which runs the `main` "
            "of that file instead. `cortex_m.h` has functions that print, and one for the stack."
        )
    more = f"; `build/{name}_selftest {name}.weights 4` does so on four threads"
    return f"`build/{name}_selftest {name}.weights` checks them{more if module.threads else ''}."


def _constants(module: Module) -> str:
    return ", and constants, which are read there" if module.memory.constants.size else ""


def _example(module: Module) -> str:
    return _script(module) if module.machine.name == "wasm32" else _program(module)


def _script(module: Module) -> str:
    """An example in JavaScript."""
    name, function = module.name, module.functions[0]
    inputs = ", ".join(p.symbol for p in function.inputs)
    outputs = ", ".join(p.symbol for p in function.outputs)
    return f"""```js
import {{ fuses, load }} from "./{name}.mjs";

const weights = await (await fetch("{name}.weights")).arrayBuffer();
const model = await load(`build/{name}${{fuses() ? ".fma" : ""}}.wasm`, weights);
const {{ {outputs} }} = model.{function.entry.name}({{ {inputs} }}); // arrays
const saved = model.save(); // bytes, for model.restore(saved) on any machine
```

`{name}.fma.wasm` has the fused multiply-add of relaxed SIMD, where the engine rounds it once, which
`fuses` finds out; the other module has the same bits, but takes many times as long. `{name}.d.mts`
has the types, `model.state` views of the state by name."""


def _program(module: Module) -> str:
    """An example in C."""
    name, upper, function = module.name, module.upper, module.functions[0]
    arrays = "\n".join(
        f"static {p.c_type} {p.symbol}[{max(1, p.type.size)}];"
        for p in (*function.inputs, *function.outputs)
    )
    fields = {side: ", ".join(p.symbol for p in ports) or "0" for side, ports in function.sides}
    return f"""```c
#include "{name}.h"

_Alignas(64) static unsigned char arena[{upper}_ARENA_BYTES], state[{upper}_STATE_BYTES];
{arrays}

int run(const void* weights, size_t size) {{
  {name} model;
  const {function.symbol}_inputs inputs = {{{fields["inputs"]}}};
  const {function.symbol}_outputs outputs = {{{fields["outputs"]}}};
  int error = {name}_init(&model, arena, state, weights, size);
  return error ? error : {function.symbol}(&model, &inputs, &outputs);
}}
```"""
