"""Plans and kernels written by hand, for tests of the player and the CPU device."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir import Type, Value, Where
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.plan.plan import Binding, Copy, Launch, Plan, Range, Step


def kernel(name: str, body: str, phases: tuple[int, ...] = (1,), top: str = "") -> Kernel:
    """A kernel from the C++ text of its body, which sees `arguments`, `phase` and `chunk`."""
    source = (
        f'{top}\nextern "C" void {name}(void* const* arguments, int phase, int chunk) {{\n'
        f"(void)phase, (void)chunk;\n{body}\n}}\n"
    )
    return Kernel(name, "pointwise", source, phases)


def binding(segment: str, name: str, start: int, type: Type) -> Binding:
    return Binding(Value(name, type), Range(segment, start, start + type.nbytes, name))


def launch(
    kernel: Kernel,
    reads: Sequence[Range] = (),
    writes: Sequence[Range] = (),
    stream: int = 0,
    where: Where | None = None,
) -> Launch:
    """A launch whose arguments are what it reads, then what it writes."""
    arguments = (*reads, *writes)
    return Launch(stream, kernel.name, arguments, tuple(reads), tuple(writes), where or Where())


def plan(
    steps: Sequence[Step],
    kernels: Sequence[Kernel],
    state: Sequence[Binding] = (),
    inputs: Sequence[Binding] = (),
    outputs: Sequence[Binding] = (),
) -> Plan:
    """The plan of these steps, with as many streams and as much work memory as they use."""
    work = [0]
    streams = {0}
    for step in steps:
        streams.add(step.stream)
        if isinstance(step, Launch):
            work += [r.stop for r in step.arguments if r.segment == "work"]
        elif isinstance(step, Copy):
            work += [r.stop for r in (step.source, step.target) if r.segment == "work"]
    return Plan(
        name="handmade",
        device="cpu",
        streams=max(streams) + 1,
        steps=tuple(steps),
        kernels={k.name: k for k in kernels},
        state=tuple(state),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        peak_bytes=max(work),
        lower_bound_bytes=max(work),
    )
