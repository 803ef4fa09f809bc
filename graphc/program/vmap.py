"""vmap: vectorize a function of one sample by rewriting its graph.

The function is traced with the types of one sample. Then each node is written again with one more
axis, by the rule `batched` of its op: a matrix-vector product becomes a matrix product, a loop over
time one loop for all samples. Nodes that depend on no sample are computed once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from graphc.base.source_lines import error
from graphc.functions.array.looping import BodyBuilder
from graphc.functions.array.tensors import as_tensor
from graphc.gradients.vocabulary import Known, Vocabulary
from graphc.ir import Names, Type, Value, tree
from graphc.ir.state import StateBuffer
from graphc.nn.buffer import Buffer
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter
from graphc.ops.axes import repeated
from graphc.trace import Builder, Tensor, current_builder
from graphc.trace.mixed import in_precision

Axis = int | None


def vmap(fn: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """Vectorize a function of one sample, for use in a traced function.

    Random functions draw different numbers for each sample, the elements of one draw for all
    samples. State that is updated inside, such as running statistics, must be mapped or the same
    for all samples.

    Args:
        fn: A function of tensors, modules, and tuples, lists and dicts of them. It may use `grad`,
            `value_and_grad`, `scan` and `vmap`, and read tensors and parameters from outside, which
            all samples share.
        in_axes: The axis of the samples in each argument; None for an argument that they share; or
            tuples, lists and dicts of these. The axis of a module is that of all its parameters,
            see `nn.stack_modules`. Keyword arguments have axis 0.
        out_axes: The axis of the samples in the results; None for one that depends on no sample.

    Returns:
        A function of arguments with the additional axis.

    Raises:
        GraphError: Axes or numbers of samples do not fit.

    Example:
        >>> dot = graphc.vmap(lambda a, b: graphc.sum(a * b), in_axes=(0, None))
        >>> specs = graphc.spec((2, 3)), graphc.spec(3)
        >>> graphc.compile(dot, *specs)(np.ones((2, 3), np.float32), np.ones(3, np.float32))
        array([3., 3.], dtype=float32)
    """

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        samples = Samples(current_builder())
        entered = samples.enter("in_axes", in_axes, args)
        named = samples.enter("in_axes", 0, kwargs)
        samples.length = samples.count()
        with samples.building():
            result = fn(*entered, **named)
            result = tree.map_leaves(lambda _, leaf: samples.own(as_tensor(leaf)), result)
        samples.rewrite()
        return samples.leave(out_axes, result)

    return wrapped


class Samples(BodyBuilder):
    """The graph of one sample, which is then rewritten for all.

    `length` is the number of samples, `elements` are the mapped tensors of one sample.
    """

    def __init__(self, outer: Builder) -> None:
        super().__init__(outer, 0, "vmap")
        self.names = Names()
        self.f = Vocabulary()
        self.known: dict[Value, Known] = {}
        self.sizes: list[tuple[str, int]] = []
        """(path of an argument, its samples)."""
        self.rows: dict[int, Tensor] = {}
        """One sample of each mapped parameter, by its buffer."""
        self.whole: dict[Value, tuple[Tensor, int]] = {}
        """The same by the sample: the parameter as it is outside, and its axis."""

    def enter(self, name: str, axes: Any, argument: Any, path: str = "") -> Any:
        """The argument as the function sees it: one sample."""
        return _paired(name, axes, argument, path, self._entered)

    def _entered(self, path: str, leaf: Any, axis: Axis) -> Any:
        if axis is None:
            return leaf
        if isinstance(leaf, Module):
            for name, parameter in leaf.named_parameters():
                self._map_parameter(f"{path}.{name}", parameter, axis)
            return leaf
        if isinstance(leaf, Parameter) and not (isinstance(leaf, Buffer) and leaf.is_value):
            self._map_parameter(path, leaf, axis)
            return leaf
        return self._sample(path, as_tensor(leaf), axis)

    def _sample(self, path: str, whole: Tensor, axis: int) -> Tensor:
        if not -whole.ndim <= axis < whole.ndim:
            raise error(f"vmap: axis {axis} is out of range for {path} {whole.value.type}")
        stacked = self.f.moved(whole, axis % whole.ndim, 0)
        self.sizes.append((path, stacked.shape[0]))
        return self.element(path, stacked)

    def _map_parameter(self, path: str, parameter: Parameter, axis: int) -> None:
        if id(parameter.state) not in self.rows:  # it may be held twice
            sample = self._sample(path, self.outer.contents(parameter.state), axis)
            self.rows[id(parameter.state)] = sample
            whole = self.outer.read_state(parameter.state)
            self.whole[sample.value] = whole, axis % whole.ndim

    def count(self) -> int:
        """The number of samples, or GraphError."""
        sizes = {size for _, size in self.sizes}
        if not sizes:
            raise error("vmap: in_axes maps no argument")
        if len(sizes) > 1:
            shown = ", ".join(f"{path} {size}" for path, size in self.sizes)
            raise error(f"vmap: expected one number of samples, got {shown}")
        if 0 in sizes:
            raise error(f"vmap: {self.sizes[0][0]} has no samples")
        return sizes.pop()

    def read_state(self, buffer: StateBuffer, name: str = "state") -> Tensor:
        row = self.rows.get(id(buffer))
        return super().read_state(buffer, name) if row is None else row

    def type_of(self, buffer: StateBuffer) -> Type:
        row = self.rows.get(id(buffer))
        return super().type_of(buffer) if row is None else row.value.type

    def known_name(self, buffer: StateBuffer) -> str:
        return super().known_name(buffer) or self.outer.known_name(buffer)

    def latest(self, buffer: StateBuffer) -> Tensor | None:
        old = self.read_state(buffer)
        if old.value in self.updates:
            return Tensor(self.updates[old.value], self)
        return None if id(buffer) in self.rows else super().latest(buffer)

    def random_step(self) -> tuple[int, int, Tensor]:
        with self.outer.building():
            seed, number, counter = self.outer.random_step()
        return seed, number, self.own(counter)

    def keeps(self, state: Tensor) -> bool:
        if state.value in self.whole:
            return self.outer.keeps(self.whole[state.value][0])
        return super().keeps(state)

    def after(self, state: Tensor) -> Tensor:
        if state.value in self.updates:
            return Tensor(self.updates[state.value], self)
        return state if state.value in self.whole else super().after(state)

    def update(self, old: Tensor, new: Tensor) -> None:
        Builder.update(self, old, new)

    def rewrite(self) -> None:
        """Append to the surrounding builder what all samples compute."""
        for whole, tensor in self.elements:
            self.known[tensor.value] = Known(whole, True)
        for value, tensor in self.constants:
            self.known[tensor.value] = Known(Tensor(value, self.outer), False)
        with in_precision(self.outer, ""):
            self.f.walk(self.nodes, self.known, self.length)
        for old, new in self.updates.items():
            self._update(old, self.known[new])
        self.hand_on([self.known[w.tensor.value].tensor for w in self.watched()])

    def _update(self, old: Value, new: Known) -> None:
        if old in self.whole:
            whole, axis = self.whole[old]
            self.outer.update(whole, self.with_samples_at(new, axis))
            return
        if new.stacked:
            raise error(
                "vmap: its function expected no side effects, got an update of state that differs "
                "from sample to sample (running statistics of a norm layer?)"
            )
        self.outer.update(self.known[old].tensor, new.tensor)

    def leave(self, axes: Any, result: Any) -> Any:
        """The results of all samples."""

        def left(path: str, leaf: Tensor, axis: Axis) -> Tensor:
            known = self.known[leaf.value]
            shown = f"the result{f' at {path}' if path else ''}"
            if axis is None:
                if known.stacked:
                    raise error(f"vmap: out_axes is None for {shown}, which samples change")
                return known.tensor
            rank = leaf.ndim + 1
            if not -rank <= axis < rank:
                raise error(
                    f"vmap: out_axes {axis} is out of range for {shown}, "
                    f"{leaf.value.type} for each sample"
                )
            return self.with_samples_at(known, axis % rank)

        return _paired("out_axes", axes, result, "", left)

    def with_samples_at(self, known: Known, axis: int) -> Tensor:
        """Return a value of all samples with their axis there."""
        if not known.stacked:
            known = Known(cast(Tensor, repeated(self.f, known.tensor, self.length)), True)
        return self.f.moved(known.tensor, 0, axis) if axis else known.tensor


def _paired(
    name: str, axes: Any, values: Any, path: str, function: Callable[[str, Any, Axis], Any]
) -> Any:
    """Replace each leaf of `values` by `function(path, leaf, its axis)`.

    `axes` is one axis for all, or has the structure of the values.
    """
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return tree.map_leaves(lambda p, leaf: function(p, leaf, axes), values, path)
    same = type(values) in (tuple, list, dict) or hasattr(values, "_fields")
    if not same or not isinstance(axes, type(values) if isinstance(values, dict) else tuple | list):
        raise error(
            f"vmap: {name}{f' at {path}' if path else ''} expected an axis or None, got {axes!r}"
        )
    keys = list(values) if isinstance(values, dict) else list(range(len(values)))
    own = list(axes) if isinstance(axes, dict) else list(range(len(axes)))
    if sorted(map(str, own)) != sorted(map(str, keys)):
        raise error(
            f"vmap: {name}{f' at {path}' if path else ''} expected axes for {_keys_text(keys)}, "
            f"got {axes!r}"
        )
    items = [
        _paired(name, axes[k], values[k], f"{path}.{k}" if path else str(k), function) for k in keys
    ]
    if isinstance(values, dict):
        return dict(zip(keys, items, strict=True))
    return type(values)(*items) if hasattr(values, "_fields") else type(values)(items)


def _keys_text(keys: list[Any]) -> str:
    return ", ".join(map(str, keys)) if keys and isinstance(keys[0], str) else f"{len(keys)} items"
