"""The self-test of an export: the calls that it makes, and the bits that they give.

Inputs are given, or the numbers of a hash that C and NumPy compute alike. Results are those of the
program on this machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.errors import GraphError
from graphc.export.header import Exported, Module
from graphc.export.interface import Function, Port
from graphc.export.lowering import Entry, optimize_for
from graphc.export.memory import HEADER
from graphc.export.names import elements, filled, native
from graphc.ir.state import StateBuffer, contents, overwrite
from graphc.program.executable import Executable
from graphc.program.loading import pack_state, target_of
from graphc.program.planning import make_plan_of

GIVEN_BYTES = 1 << 20
"""The most bytes of given inputs that a self-test may hold."""


@dataclass(frozen=True)
class Call:
    """One call of a function, and what it gives."""

    function: Function
    seed: int
    """The number of the first input that is made up; each further input has the next one."""
    given: tuple[Array, ...]
    """The inputs, if they were given."""
    outputs: tuple[int, ...]
    """CRC-32 of each output's bytes."""
    state: int
    """CRC-32 of the state behind its header, after the call."""


@dataclass(frozen=True)
class SelfTest:
    """All calls in order."""

    calls: tuple[Call, ...]


def selftest_of(module: Module, count: int, given: Sequence[Sequence[Any]] | None) -> SelfTest:
    """Return `count` calls of each function in turns, with `given` inputs if there are any.

    The state is as before. Raises GraphError for inputs that do not fit, or too many.
    """
    buffers = {str(n): item.buffer for n, item in enumerate(module.memory.state.items)}
    players = {f.entry.name: _player(module, f.entry) for f in module.functions}
    before, calls = contents(buffers, "export"), []
    try:
        for function, seed, own, outputs in calls_in_turns(module, count, given, players):
            crcs = tuple(zlib.crc32(output.tobytes()) for output in outputs)
            calls.append(Call(function, seed, own, crcs, _state_crc(module, buffers)))
    finally:
        overwrite(buffers, before, "export")
    return SelfTest(tuple(calls))


def calls_in_turns(
    module: Exported,
    count: int,
    given: Sequence[Sequence[Any]] | None,
    players: Mapping[str, Executable],
) -> Iterator[tuple[Function, int, tuple[Array, ...], tuple[Array, ...]]]:
    """Make `count` calls of each function in turns, with `given` inputs if there are any.

    Yields, after each call, the function, the number of the first input that is made up, the inputs
    if they were given, and the outputs. Raises GraphError for inputs that do not fit, or too many.
    """
    arrays, seed = given_arrays(module, count, given), 0
    for number in range(count):
        for function in module.functions:
            own = arrays[number % len(arrays)] if arrays else ()
            inputs = own or made_up(function.inputs, seed)
            results = players[function.entry.name].run(list(inputs))
            yield function, seed, own, tuple(np.ascontiguousarray(r) for r in results)
            seed += len(function.inputs)


def made_up(ports: Sequence[Port], seed: int) -> list[Array]:
    """Return inputs that the self-test makes up, which begin with the one of this number.

    Floats lie in [-1, 1), those of two bytes in [1, 2) or (-2, -1]; all else is 0 or 1.
    """
    return [_made_up(port, seed + n) for n, port in enumerate(ports)]


def _made_up(port: Port, seed: int) -> Array:
    size = port.type.size
    with np.errstate(over="ignore"):
        h = np.arange(size, dtype=np.uint32) + np.uint32(seed * 0x9E3779B9 & 0xFFFFFFFF)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    dtype = port.type.dtype
    if dtype in ("f32", "f64"):
        found: Array = ((h >> 8).astype(np.int32) - 2**23) * np.float64(2.0**-23)
        found = found.astype(port.type.numpy_dtype)
    elif dtype in ("f16", "bf16"):
        one, shift = (0x3C00, 22) if dtype == "f16" else (0x3F80, 25)
        bits = (h << np.uint32(31) >> np.uint32(16)) | one | (h >> np.uint32(shift))
        found = bits.astype(np.uint16).view(port.type.numpy_dtype)
    else:
        found = (h & 1).astype(port.type.numpy_dtype)
    return found.reshape(port.type.shape)


def given_arrays(
    module: Exported, count: int, given: Sequence[Sequence[Any]] | None
) -> list[tuple[Array, ...]]:
    """Return the arrays of each call; empty if none are given.

    Raises GraphError for a wrong number of calls, and for inputs that do not fit, or too many.
    """
    if not isinstance(count, int) or count < 1:
        raise GraphError(f"export: calls expected a number from 1 on, got {count!r}")
    if given is None:
        return []
    if len(module.functions) > 1:
        raise GraphError("export: inputs belong to a single program, the export has several")
    program = module.functions[0].entry.program
    found = [tuple(map(np.array, program.checked(call))) for call in given]
    total = sum(array.nbytes for call in found for array in call)
    if not found or total > GIVEN_BYTES:
        raise GraphError(
            f"export: inputs expected at least one call, of {GIVEN_BYTES} bytes in all at most, "
            f"got {len(found)} of {total} bytes"
        )
    return found


def _state_crc(module: Module, buffers: dict[str, StateBuffer]) -> int:
    for buffer in buffers.values():
        buffer.refresh_host()
    return zlib.crc32(module.memory.state.image()[HEADER:])


def _player(module: Module, entry: Entry) -> Executable:
    """What plays a program on this machine with the bits of the export's machine."""
    program = entry.program
    flushes = program.recipe.settings.denormals == "flush"
    own = program.plan is not None and any(k.sums == "own" for k in program.plan.kernels.values())
    if program.target.device == "cpu" and flushes == module.flush and not own:
        return program.executable
    from graphc.runtime.cpu import executable

    target = replace(target_of("cpu"), multiplies_pairs=False, multiplies_tiles=False)
    _, graph, state = optimize_for(target, program)
    graph, bound = pack_state(graph, state, target)
    plan = make_plan_of(graph, target, streams=1)
    return executable.load(plan, bound, 1, graph, flush=module.flush)


def selftest_text(module: Module, test: SelfTest) -> str:
    """Return selftest.c."""
    return "\n".join(_lines(module, test)) + "\n"


def _lines(module: Module, test: SelfTest) -> Iterator[str]:
    name, upper = module.name, module.upper
    yield f"/* The self-test of {name}: calls, and the bits that graphc {module.version} computed."
    yield "   It prints one line per call, and returns 0 if all bits are the same. With"
    yield "   SELFTEST_LIBRARY it is the function NAME_selftest, without files and output. */"
    yield f'#include "{name}.h"'
    yield ""
    yield "#ifndef SELFTEST_LIBRARY"
    yield "#include <stdio.h>"
    if module.threads:
        yield "#include <stdlib.h>"
    yield "#endif"
    yield ""
    yield _HELPERS
    yield native("fill.h")
    yield f"_Alignas(64) static unsigned char arena[{upper}_ARENA_BYTES];"
    yield f"_Alignas(64) static unsigned char state[{upper}_STATE_BYTES];"
    if module.threads:
        yield f"_Alignas(64) static unsigned char pool[{upper}_POOL_BYTES];"
        yield "static int threads = 1;"
    for function in module.functions:
        for side, ports in function.sides:
            for port in ports:
                if port.type.size:
                    memory = memory_of(function, side, port)
                    yield f"static {port.c_type} {memory}[{port.type.size}];"
    yield from _tables(test)
    yield ""
    yield "/* The calls that differ, and the checksum of the state after the last one; -1 if the"
    yield "   weights are refused, -2 if the system has not so many threads. */"
    yield (
        f"int {name}_selftest(const void* weights, size_t size, uint32_t* checksums, int* calls) {{"
    )
    yield f"  {name} model;"
    yield "  int wrong = 0;"
    yield f"  if ({name}_init(&model, arena, state, weights, size) != {upper}_OK) return -1;"
    if module.threads:
        yield f"  if (threads > 1 && {name}_start(&model, pool, threads) < threads) return -2;"
    for number, call in enumerate(test.calls):
        yield from _call(module, number, call)
    if module.threads:
        yield f"  {name}_stop(&model);"
    yield f"  *calls = {len(test.calls)};"
    yield "  return wrong;"
    yield "}"
    yield ""
    coded = module.weights_in_code
    main = _MAIN.replace("LOADED", _FROM_CODE if coded else _FROM_FILE)
    main = main.replace("COUNTED", _THREADS if module.threads else "")
    found = f"{name}_weights" if coded else "weights"
    count = str(len(test.calls))
    yield filled(main, {"NAME": name, "UPPER": upper, "FOUND": found, "CALLS": count})


def _tables(test: SelfTest) -> Iterator[str]:
    """The given inputs as arrays of bytes."""
    for number, call in enumerate(test.calls):
        yield from given_lines(number, call.function.inputs, call.given)


def given_lines(number: int, ports: Sequence[Port], arrays: Sequence[Array]) -> Iterator[str]:
    """Yield the given inputs of the call of this number as arrays of bytes."""
    for port, array in zip(ports, arrays, strict=False):
        if raw := array.tobytes():
            yield f"static const unsigned char given_{number}_{port.symbol}[] = {{"
            yield f"    {elements(raw)}}};"


def fill_lines(function: Function, number: int, seed: int, given: bool) -> Iterator[str]:
    """Yield the statements that fill the inputs of the call of this number.

    They are what was `given`, or made up from `seed` on.
    """
    for n, port in enumerate(function.inputs):
        if not port.type.size:
            continue
        memory = memory_of(function, "inputs", port)
        if given:
            yield f"    copy({memory}, given_{number}_{port.symbol}, sizeof {memory});"
        else:
            fill = {"f32": "floats", "f64": "doubles", "f16": "halves", "bf16": "bfloats"}
            of = fill.get(port.type.dtype, f"bits{8 * port.type.numpy_dtype.itemsize}")
            yield f"    fill_{of}({memory}, {port.type.size}, {seed + n}u);"


def _call(module: Module, number: int, call: Call) -> Iterator[str]:
    function = call.function
    yield "  {"
    yield from fill_lines(function, number, call.seed, bool(call.given))
    fields = {
        side: ", ".join(memory_of(function, side, p) if p.type.size else "0" for p in ports) or "0"
        for side, ports in function.sides
    }
    for side, values in fields.items():
        yield f"    const {function.symbol}_{side} {side} = {{{values}}};"
    yield f"    int same = {function.symbol}(&model, &inputs, &outputs) == {module.upper}_OK;"
    for port, crc in zip(function.outputs, call.outputs, strict=True):
        if port.type.size:
            memory = memory_of(function, "outputs", port)
            yield f"    same &= checksum(CRC_START, {memory}, sizeof {memory}) == {crc:#010x}u;"
    yield f"    const unsigned char* saved = (const unsigned char*){module.name}_save(&model);"
    yield f"    checksums[{number}] = (uint32_t)saved[12] | (uint32_t)saved[13] << 8 |"
    yield "        (uint32_t)saved[14] << 16 | (uint32_t)saved[15] << 24;"
    yield f"    wrong += !(same && checksums[{number}] == {call.state:#010x}u);"
    yield "  }"


def memory_of(function: Function, side: str, port: Port) -> str:
    """Return the name of an input's or an output's array."""
    return f"{function.symbol}_{side.removesuffix('puts')}_{port.symbol}"


_HELPERS = r"""#define CRC_START 0xffffffffu

static uint32_t checksum(uint32_t sum, const void* data, size_t count) {
  const unsigned char* bytes = (const unsigned char*)data;
  for (size_t i = 0; i < count; i++) {
    sum ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
  }
  return ~sum;
}
"""
_MAIN = r"""#ifndef SELFTEST_LIBRARY
int main(int count, char** words) {
LOADED
COUNTED  static uint32_t checksums[CALLS];
  int calls = 0;
  const int wrong = NAME_selftest(FOUND, size, checksums, &calls);
  if (wrong < 0)
    return fprintf(stderr, wrong == -1 ? "the weights are refused\n" : "no more threads\n"), 2;
  for (int i = 0; i < calls; i++) printf("call %d: state %08x\n", i, (unsigned)checksums[i]);
  printf("%d of %d calls have the same bits\n", calls - wrong, calls);
  printf("memory: %d bytes of arena, %d of state, %d of weights\n", UPPER_ARENA_BYTES,
         UPPER_STATE_BYTES, UPPER_WEIGHTS_BYTES);
  return wrong != 0;
}
#endif
"""
_THREADS = r"""  threads = count > 2 ? atoi(words[2]) : 1;
"""
_FROM_FILE = r"""  static unsigned char weights[UPPER_WEIGHTS_BYTES];
  const char* path = count > 1 ? words[1] : "NAME.weights";
  FILE* file = fopen(path, "rb");
  if (!file) return fprintf(stderr, "cannot read %s\n", path), 2;
  const size_t size = fread(weights, 1, sizeof weights, file);
  fclose(file);"""
_FROM_CODE = r"""  const size_t size = UPPER_WEIGHTS_BYTES;
  (void)count, (void)words;"""
