"""`program.explain(what)`: why a thing is as it is, for whatever a plan or a graph names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from graphc.base.errors import GraphError
from graphc.inspect.explain_graph import GraphReader, called, title
from graphc.inspect.explain_plan import PlanReader
from graphc.inspect.explanation import TOPICS, Explanation, Reason
from graphc.inspect.subject import Subject
from graphc.ir import Node, Value, Where
from graphc.ops.fused import KernelNode
from graphc.ops.loops.scan import Scan
from graphc.runtime.plan.lives import step_name
from graphc.runtime.plan.plan import Copy, Launch, Loop, Range, Record, Step, Wait

_BYTES = re.compile(r"(work|state|io)\+(\d+)\.\.(\d+)")
_EVENT = re.compile(r"e(\d+)")
_LINE = re.compile(r".*\.\w+:\d+")


class Explainer:
    """Answers for one program; what it has found out is kept."""

    def __init__(self, program: Subject) -> None:
        self.program = program
        self.graph = GraphReader(program)
        self.plan = None if program.plan is None else PlanReader(program.plan)
        self.launched: dict[str, Node] = {}
        """The node that each kernel of the plan computes."""
        for step in self.plan.steps if self.plan else ():
            if isinstance(step, Launch):
                found = (self.graph.made.get(place.value) for place in step.writes)
                node = next((n for n in found if n is not None), None)
                if node is not None:
                    self.launched.setdefault(step.kernel, node)

    def explain(self, what: Any) -> Explanation:
        """Explain an op, value, kernel, loop, event, byte range, module or line.

        `what` is a name as in the plan or the graph, or one of their objects. It raises GraphError
        if nothing has the name.
        """
        if isinstance(what, Node):
            name = what.op.kernel if isinstance(what, KernelNode) else what.outputs[0].name
            return self._named(name)
        if isinstance(what, Value):
            return self._named(what.name)
        if isinstance(what, Range):
            return self._bytes(what)
        if isinstance(what, Record | Wait):
            return self._event(what.event, what)
        if isinstance(what, Copy):
            return self._named(what.target.value)
        if isinstance(what, Launch | Loop):
            return self._named(step_name(what))
        if not isinstance(what, str):
            raise GraphError(f"explain: expected {_EXPECTED}, got {type(what).__name__}")
        if match := _BYTES.fullmatch(what):
            return self._bytes(Range(match[1], int(match[2]), int(match[3])))
        if match := _EVENT.fullmatch(what):
            return self._event(int(match[1]))
        return self._line(what) if _LINE.fullmatch(what) else self._named(what.removeprefix("%"))

    def _named(self, name: str) -> Explanation:
        reader = self.graph
        if name in self.launched:
            return self._kernel(name, self.launched[name])
        node = next((n for n in reader.nodes if _kernel_name(n) == name), None)
        if node is not None:
            return self._kernel(name, node)
        if name in reader.made or name in reader.inner:
            return self._value(name)
        if self.plan is not None:
            if found := list(self.plan.memory(name)):
                return self._given(name, found)
            for number, step in enumerate(self.plan.steps):
                if isinstance(step, Loop) and step.name == name:
                    return self._loop(number, step)
        if (module := self._module(name)) is not None:
            return module
        if (gone := reader.removed(name)) is not None:
            node, reasons = gone
            subject = f"value %{name}" if node is None else title(node)
            return _explanation(subject, node.where if node else Where(), reasons)
        raise self._unknown(name)

    def _kernel(self, name: str, node: Node) -> Explanation:
        return _explanation(f"kernel {name}", node.where, self._of_kernel(name, node))

    def _of_kernel(self, name: str, node: Node) -> Iterator[Reason]:
        yield self.graph.what(node)
        if isinstance(node, KernelNode):
            yield from self.graph.fused(node)
            if node.op.note:
                yield Reason("apart", node.op.note)
        yield from self.graph.separations(node)
        if self.plan is None:
            return
        numbers = list(self.plan.launches(name))
        kernel = self.plan.plan.kernels.get(name)
        if kernel is not None:
            chunks = " + ".join(map(str, kernel.phases))
            text = kernel.choice or f"the loops of {kernel.template}"
            cut = f"cut into {chunks} chunks, whatever the number of threads"
            if kernel.call is not None:
                cut = "not a kernel of graphc's"
            if kernel.launches:
                sizes = (
                    f"{_product(x.grid)} blocks of {_product(x.block)}" for x in kernel.launches
                )
                cut = f"{' and '.join(sizes)} threads"
            yield Reason("tile", f"{text}; {cut}")
        for value in node.outputs:
            for reason in self.plan.memory(value.name):
                yield Reason(reason.topic, reason.text, f"%{value.name}")
        for number in numbers[:1]:
            yield from self.plan.stream(number)
        if not numbers:
            yield Reason(
                "memory", "converted once for each change of the parameter, and not in each call"
            )

    def _value(self, name: str) -> Explanation:
        reader = self.graph
        outer, inner = reader.inner.get(name, (None, None))
        node = reader.made.get(name)
        if inner is None or outer is None:
            assert node is not None
            return _explanation(title(node), node.where, self._of_step_value(name, node))
        return _explanation(title(inner), inner.where, self._of_inner_value(name, outer, inner))

    def _of_inner_value(self, name: str, kernel: KernelNode, inner: Node) -> Iterator[Reason]:
        stored = any(v.name == name for v in kernel.body.outputs)
        place = "writes it" if stored else "keeps it in registers: it takes no memory"
        yield Reason("what", f"kernel {kernel.op.kernel} computes and {place}")
        for reason in self.graph.fused(kernel):
            if reason.about == title(inner):
                yield reason
        if stored:
            outer = kernel.outputs[[v.name for v in kernel.body.outputs].index(name)]
            for reason in self.graph.separations(kernel):
                if f"%{name}:" in reason.text:
                    yield reason
            yield from self.plan.memory(outer.name) if self.plan else ()

    def _of_step_value(self, name: str, node: Node) -> Iterator[Reason]:
        if isinstance(node.op, Scan):
            yield Reason("what", f"the loop {called(node)} makes it")
        else:
            yield self.graph.what(node)
        yield from self.graph.separations(node)
        held = list(self.plan.memory(name)) if self.plan else []
        if not held and self.plan and node.op.name == "reshape":
            yield Reason("memory", f"the bytes of %{node.inputs[0].name}, by another name")
        yield from held

    def _given(self, name: str, reasons: list[Reason]) -> Explanation:
        readers = self.graph.readers.get(name, [])
        used = [Reason("what", f"{called(n)} reads it") for n in readers]
        where = readers[0].where if readers else Where()
        if lines := self.program.closures.get(name):
            used.append(
                Reason(
                    "what",
                    f"a parameter that the function reads at {', '.join(lines)} without being given"
                    " it: update= does not train it unless its module is an argument of compile",
                )
            )
        used += self.graph.rows(name)
        return _explanation(f"value %{name}", where, [*used, *reasons])

    def _loop(self, number: int, loop: Loop) -> Explanation:
        assert self.plan is not None
        count = sum(isinstance(s, Launch) for s in loop.steps)
        what = Reason("what", f"a loop of {loop.count} iterations of {count} launches, one step")
        reasons = [what, *self.plan.stream(number)]
        return _explanation(f"loop {loop.name}", loop.where, reasons)

    def _event(self, event: int, step: Step | None = None) -> Explanation:
        steps = self.plan.steps if self.plan else []
        same = [n for n, s in enumerate(steps) if isinstance(s, Record | Wait) and s.event == event]
        if not same or self.plan is None:
            raise self._unknown(f"e{event}")
        number = next((n for n in same if steps[n] is step), same[0])
        return _explanation(f"event e{event}", Where(), self.plan.event(number))

    def _bytes(self, place: Range) -> Explanation:
        subject = f"bytes {place.segment}+{place.start}..{place.stop}"
        reasons = list(self.plan.bytes(place)) if self.plan else []
        return _explanation(subject, Where(), reasons or [Reason("memory", "nothing lies there")])

    def _line(self, line: str) -> Explanation:
        wheres = [(n, name) for name, n in self.launched.items()] or [
            (n, called(n)) for n in self.graph.nodes
        ]
        found = [(n, name) for n, name in wheres if line in n.where.lines]
        reasons = [Reason("what", self.graph.what(n).text, name) for n, name in found]
        if not found:
            traced = next(iter(self.program.stages.values())).nodes
            for node in (n for n in traced if line in n.where.lines):
                gone = self.graph.removed(node.outputs[0].name)
                reasons += [Reason(r.topic, r.text, title(node)) for r in (gone or (None, []))[1]]
        if not reasons:
            raise self._unknown(line)
        return Explanation(f"line {line}", (line,), tuple(reasons))

    def _module(self, path: str) -> Explanation | None:
        own = [
            (name, node)
            for name, node in self.launched.items()
            if node.where.module == path or node.where.module.startswith(f"{path}.")
        ]
        if not own:
            return None
        where = Where("", tuple(dict.fromkeys(x for _, n in own for x in n.where.lines)))
        reasons = [Reason("what", self.graph.what(node).text, name) for name, node in own]
        return _explanation(f"module {path}", where, reasons)

    def _unknown(self, name: str) -> GraphError:
        known = [*self.launched, *self.graph.made, *self.graph.inner]
        known += [line for n in self.graph.nodes for line in n.where.lines]
        near = difflib.get_close_matches(name, dict.fromkeys(known), 1)
        hint = f"; near it: {', '.join(near)}" if near else ""
        return GraphError(
            f"explain: {self.program.name} has no {name!r}: expected {_EXPECTED}{hint}"
        )


_EXPECTED = (
    "the name of a kernel, value, op, loop or module, e3, work+0..64, file.py:3, or a node, value "
    "or step"
)


def _explanation(subject: str, where: Where, reasons: Iterable[Reason]) -> Explanation:
    ordered = sorted(dict.fromkeys(reasons), key=lambda reason: TOPICS.index(reason.topic))
    return Explanation(subject, where.lines, tuple(ordered))


def _kernel_name(node: Node) -> str:
    return node.op.kernel if isinstance(node, KernelNode) else ""


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
