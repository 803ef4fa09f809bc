"""The self-test of an export for GPUs: calls, and what they gave here.

GPUs multiply and round in ways of their own where tensor cores do, so results are compared within a
tolerance, and how many have the very bits is printed. All calls are then made again from the same
state, by graphs: these must have the bits of the first time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphc.base.dtypes import Array
from graphc.export.cuda.header import CudaModule
from graphc.export.interface import Function, Port
from graphc.export.lowering import Entry
from graphc.export.memory import HEADER
from graphc.export.names import filled, native
from graphc.export.selftest import calls_in_turns, fill_lines, given_lines, memory_of
from graphc.ir.state import StateBuffer, contents, overwrite
from graphc.program.executable import Executable
from graphc.program.program import Program

TOLERANCES = {"float32": 1e-3, "float32x3": 1e-3, "tf32": 2e-2, "bfloat16": 5e-2, "winograd": 1e-2}
"""How far results may be from those computed here: the root of the mean square of the differences
by that of the expected numbers, for each precision of products."""
_KINDS = {"f32": 4, "f64": 8, "f16": 2, "bf16": 3}
"""How the self-test in C calls types of floats; all else is compared by bytes."""


@dataclass(frozen=True)
class Call:
    """One call of a function, and what it gives."""

    function: Function
    seed: int
    """The number of the first input that is made up; each further input has the next one."""
    given: tuple[Array, ...]
    """The inputs, if they were given."""
    outputs: tuple[Array, ...]
    """What it returns here."""


@dataclass(frozen=True)
class SelfTest:
    """All calls in order."""

    calls: tuple[Call, ...]
    state: bytes
    """The state after the last one, without its header."""
    where: str
    """What computed the results."""


def selftest_of(module: CudaModule, count: int, given: Sequence[Sequence[Any]] | None) -> SelfTest:
    """Return `count` calls of each function in turns, with `given` inputs if there are any.

    The state is as before. Raises GraphError for inputs that do not fit, or too many.
    """
    buffers = {str(n): item.buffer for n, item in enumerate(module.memory.state.items)}
    players = {f.entry.name: _player(f.entry) for f in module.functions}
    before = contents(buffers, "export")
    try:
        calls = tuple(Call(*call) for call in calls_in_turns(module, count, given, players))
        for buffer in buffers.values():
            buffer.refresh_host()
        state = module.memory.state.image()[HEADER:]
    finally:
        overwrite(buffers, before, "export")
    program = module.functions[0].entry.program
    return SelfTest(calls, state, "a GPU" if _present(program) else "the simulator")


def _present(program: Program) -> bool:
    """Whether the program's device is a GPU that is there."""
    from graphc.runtime.cuda import CudaExecutable

    executable = program.executable
    return isinstance(executable, CudaExecutable) and not executable.device.declares


def _player(entry: Entry) -> Executable:
    """What plays a program here: its own executable, or the simulator where the GPU is missing."""
    from graphc.runtime import cuda

    executable = entry.program.executable
    if isinstance(executable, cuda.CudaExecutable):
        return executable
    names = [binding.value.name for binding in entry.plan.state]
    state: Mapping[str, StateBuffer] = dict(zip(names, entry.buffers, strict=True))
    return cuda.load(entry.plan, state, "sim")


def expected_bytes(test: SelfTest) -> bytes:
    """Return NAME.expected: the outputs of all calls, then the state."""
    outputs = b"".join(a.tobytes() for call in test.calls for a in call.outputs)
    return outputs + test.state


def selftest_text(module: CudaModule, test: SelfTest) -> str:
    """Return selftest.c."""
    tolerance = max(TOLERANCES[f.entry.program.recipe.precision] for f in module.functions)
    words = {
        "MEMORY_OF_CALLS": "\n".join(_memory(module, test)),
        "ALL_CALLS": "\n".join(
            line for number, call in enumerate(test.calls) for line in _call(module, number, call)
        ),
        "ALL_STATE": "\n".join(_state(module, test)),
        "EXPECTED_BYTES": str(len(expected_bytes(test))),
        "NUMBER_OF_CALLS": str(len(test.calls)),
        "TOLERANCE": f"{tolerance:g}",
        "COMPUTED_BY": test.where,
        "MADE_BY": module.version,
        "HELPERS": native("fill.h"),
        "UPPER": module.upper,
        "NAME": module.name,
    }
    return filled(native("cuda_selftest.c"), words)


def _kind(dtype: str) -> int:
    return _KINDS.get(dtype, 0)


def _memory(module: CudaModule, test: SelfTest) -> Iterator[str]:
    """The arrays of inputs and outputs."""
    for function in module.functions:
        for side, ports in function.sides:
            for port in ports:
                if port.type.size:
                    memory = memory_of(function, side, port)
                    yield f"static {port.c_type} {memory}[{port.type.size}];"
    for number, call in enumerate(test.calls):
        yield from given_lines(number, call.function.inputs, call.given)


def _call(module: CudaModule, number: int, call: Call) -> Iterator[str]:
    function = call.function
    yield "  {"
    yield from fill_lines(function, number, call.seed, bool(call.given))
    for side, ports in function.sides:
        names = [memory_of(function, side, p) if p.type.size else "0" for p in ports]
        yield f"    const {function.symbol}_{side} {side} = {{{', '.join(names) or '0'}}};"
    yield f"    if (failed({function.symbol}(&model, &inputs, &outputs))) return -1;"
    for port in function.outputs:
        if port.type.size:
            yield f"    {_compared(function, port, number)}"
    yield "  }"


def _state(module: CudaModule, test: SelfTest) -> Iterator[str]:
    """The comparisons of the state with what is expected behind the outputs."""
    start = len(expected_bytes(test)) - len(test.state) - HEADER
    for item in module.memory.state.items:
        size, kind = item.array.nbytes, _kind(item.type.dtype)
        yield f"    at = {start + item.offset};"
        yield f'    wrong += differs({kind}, saved + {item.offset}, {size}, "{item.symbol}");'


def _compared(function: Function, port: Port, number: int) -> str:
    memory = memory_of(function, "outputs", port)
    what = f'"call {number}: {port.symbol}"'
    return f"wrong += differs({_kind(port.type.dtype)}, {memory}, sizeof {memory}, {what});"
