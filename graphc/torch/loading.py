"""PyTorch's modules as modules of graphc."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from graphc import functions as f
from graphc import nn
from graphc.base.dtypes import BFLOAT16
from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.ir import Type
from graphc.nn.state_arrays import as_array, mapping_of
from graphc.torch.aten.rules import DTYPES
from graphc.torch.call import array_of
from graphc.torch.exporting import Exported, exported
from graphc.torch.interpret import interpret
from graphc.torch.partition import type_of
from graphc.trace import Operand, Tensor

TORCHS = {name: dtype for dtype, name in DTYPES.items()}
"""graphc's short names of dtypes, by PyTorch's dtypes."""


def from_torch(module: torch.nn.Module, *example: Any, **named: Any) -> Model:
    """Convert a PyTorch module; `graphc.from_torch` describes the arguments.

    It raises GraphError if torch.export cannot trace it, or with all unsupported operators.
    """
    if not isinstance(module, torch.nn.Module):
        raise error(f"from_torch: expected a torch.nn.Module, got {_named(module)}")
    kind = type(module).__name__
    try:
        inspect.signature(module.forward).bind(*example, **named)
    except TypeError as problem:
        raise error(
            f"from_torch: expected an example of each input of {kind}.forward"
            f"{inspect.signature(module.forward)}: {problem}"
        ) from None
    model = Model(module, {})
    model.exported(*tree_map(_type_or_constant, (example, named)))
    return model


def to_torch(state: Mapping[str, Any] | nn.Module) -> dict[str, torch.Tensor]:
    """PyTorch's `state_dict` of a module or of what its `state_dict` gave: copies."""
    types = state.state_types() if isinstance(state, nn.Module) else {}
    arrays = {n: as_array(n, value) for n, value in mapping_of("to_torch", state).items()}
    return {name: _tensor(array, types.get(name)) for name, array in arrays.items()}


class Model(nn.Module):
    """A PyTorch module with its names of parameters, buffers and modules.

    Its modes are PyTorch's until `train` or `eval` is called. A call traces PyTorch's module again
    for new types of inputs or modes. Its weights are copies, which PyTorch's module does not see.
    """

    def __init__(self, module: torch.nn.Module, made: dict[int, Any]) -> None:
        made[id(module)] = self
        own = vars(self)
        own["_source"] = _Source(module)
        self.training = module.training
        for name, tensor in module._parameters.items():
            own[name] = _state(tensor, name, made, True)
        for name, buffer in module._buffers.items():
            persistent = name not in module._non_persistent_buffers_set
            own[name] = _state(buffer, name, made, persistent)
        for name, child in module._modules.items():
            if child is None:
                own[name] = None
            else:
                own[name] = made[id(child)] if id(child) in made else Model(child, made)

    @property
    def forward(self) -> Callable[..., Any]:
        """PyTorch's `forward`, on traced tensors."""

        def forward(*args: Any, **named: Any) -> Any:
            return self._run(args, named)

        module = self._source.module
        forward.__signature__ = inspect.signature(module.forward)  # type: ignore[attr-defined]
        return forward

    def exported(self, args: tuple[Any, ...], named: dict[str, Any]) -> Exported:
        """Return the graph for inputs of these types, in the current modes."""
        source: _Source = self._source
        parts = [m for m in self.modules() if isinstance(m, Model)]
        key = repr((tree_flatten((args, named)), [part.training for part in parts]))
        if key not in source.graphs:
            place = next((p.device for p in source.module.parameters()), torch.device("cpu"))
            examples = tree_map(lambda leaf: _example(leaf, place), (args, named))
            with _modes(parts):
                source.graphs[key] = exported(source.module, *examples)
        return source.graphs[key]

    def _run(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        args, named = tree_map(_traced, (args, named))
        found = self.exported(*tree_map(_type_or_constant, (args, named)))
        given = iter(tree_leaves((args, {name: named[name] for name in found.names})))
        arguments: list[Any] = []
        for one in found.inputs:
            if one.kind == InputKind.USER_INPUT:
                arguments.append(next(given))
            elif one.kind == InputKind.CONSTANT_TENSOR:
                arguments.append(f.as_tensor(array_of(found.constants[one.target].detach())))
            else:
                arguments.append(f.as_tensor(self._member(str(one.target))))
        results = interpret(found.graph, arguments, draws=True)
        returned = []
        for one, result in zip(found.outputs, results, strict=True):
            if one.kind == OutputKind.BUFFER_MUTATION:
                buffer = self._member(str(one.target))
                assert isinstance(buffer, nn.Buffer)
                buffer.become(result)
            else:
                constant = isinstance(one.arg, ConstantArgument)
                returned.append(one.arg.value if constant else result)
        return tree_unflatten(returned, found.returned)

    def _member(self, path: str) -> Any:
        member: Any = self
        for name in path.split("."):
            member = vars(member)[name]
        return member

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self) and name in self._source.names:
            raise error(
                f"{self._source.kind}: {name} is PyTorch's: replace it in PyTorch's module and "
                "call from_torch again"
            )
        super().__setattr__(name, value)

    def __getitem__(self, index: int) -> Any:
        """The layer in this place of a Sequential or a list."""
        names = list(self._source.module._modules)
        if not isinstance(index, int) or not -len(names) <= index < len(names):
            raise IndexError(f"{self._source.kind} has {len(names)} modules, got {index!r}")
        return vars(self)[names[index]]

    def __iter__(self) -> Iterator[Any]:
        return (vars(self)[name] for name in self._source.module._modules)

    def describe(self) -> str:
        inside = self._source.module.extra_repr()
        return f"{self._source.kind}({inside})" if inside else self._source.kind


class _Source:
    """Where a module comes from, and its graphs so far. PyTorch's weights are not read again."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module, self.kind = module, type(module).__name__
        self.names = {*module._parameters, *module._buffers, *module._modules}
        self.graphs: dict[str, Exported] = {}


def _state(tensor: Any, name: str, made: dict[int, Any], persistent: bool) -> Any:
    """Return the parameter or buffer of a PyTorch tensor, one however often the tensor occurs."""
    if tensor is None:
        return None
    if id(tensor) not in made:
        if is_lazy(tensor):
            raise error(f"from_torch: {name} has no shape yet: call PyTorch's module once")
        try:
            type_of(tensor)
        except GraphError as problem:
            raise error(f"from_torch: {name}: {problem}") from None
        array = array_of(tensor.detach())
        if isinstance(tensor, torch.nn.Parameter):
            made[id(tensor)] = nn.Parameter(array, trainable=tensor.requires_grad)
        else:
            made[id(tensor)] = nn.Buffer(array, persistent)
    return made[id(tensor)]


@contextmanager
def _modes(parts: list[Model]) -> Iterator[None]:
    """Let PyTorch's modules be in the modes of graphc's."""
    modules = [part._source.module for part in parts]
    before = [module.training for module in modules]
    try:
        for module, part in zip(modules, parts, strict=True):
            module.training = part.training
        yield
    finally:
        for module, mode in zip(modules, before, strict=True):
            module.training = mode


def _type_or_constant(leaf: Any) -> Any:
    """The type of a tensor or array; anything else as it is."""
    if isinstance(leaf, torch.Tensor):
        return type_of(leaf)
    return f.as_tensor(leaf).value.type if isinstance(leaf, Operand) else leaf


def _example(leaf: Any, place: torch.device) -> Any:
    """A tensor of a type, whose elements nobody reads."""
    if not isinstance(leaf, Type):
        return leaf
    return torch.zeros(leaf.shape, dtype=TORCHS[leaf.dtype], device=place)


def _traced(leaf: Any) -> Any:
    """Tensors and arrays as traced tensors; anything else as it is."""
    if isinstance(leaf, torch.Tensor):
        leaf = array_of(leaf.detach())
    return f.as_tensor(leaf) if isinstance(leaf, Operand | np.ndarray | Tensor) else leaf


def _tensor(array: Any, kind: Type | None) -> torch.Tensor:
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    tensor = torch.from_numpy(np.array(array))
    return tensor if kind is None else tensor.to(TORCHS[kind.dtype])


def _named(value: Any) -> str:
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__name__}"
