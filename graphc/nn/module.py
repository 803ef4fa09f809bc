"""Modules: objects that hold parameters and other modules as attributes.

Nothing is registered. Parameters and submodules are found where they are: as attributes, also
within lists, tuples, dicts and dataclasses. So `super().__init__()` is not needed.

A program reads the parameters that it was compiled with. `weight.assign(array)` writes into one;
after another Parameter or Module was put in its place, calling the program is an error.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, Self, TypeVar

from graphc.base.dlpack import host_array
from graphc.base.dtypes import can_hold
from graphc.base.errors import GraphError
from graphc.base.source_lines import user_line
from graphc.ir import FLOATS, Array, Type, dtype_name, tree
from graphc.ir.state import StateBuffer, overwrite, snapshot
from graphc.nn.buffer import Buffer, as_read
from graphc.nn.missing import device_hint, missing_method
from graphc.nn.parameter import Parameter, changes
from graphc.nn.summary import Summary, summary_of
from graphc.trace import Builder, current_builder, innermost_builder

T = TypeVar("T")
ForwardHook = Callable[["Module", tuple[Any, ...], Any], Any]


class Module:
    """Base of all layers and models. A subclass sets attributes and defines `forward`."""

    # Not among the attributes, which are the members of some modules.
    __slots__ = ("__dict__", "__weakref__", "_hooks", "_own_training")
    _hooks: list[ForwardHook]
    """What `register_forward_hook` was given; absent where nothing was."""
    _own_training: bool
    """What `train` or `eval` said; absent where neither was called."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherited = cls.__init__
        if "__init__" not in vars(cls) and inherited.__qualname__.startswith("_"):
            # Python's errors of wrong arguments name the class that defines __init__.
            setattr(cls, "__init__", _named_after(cls, inherited))  # noqa: B010

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs, from traced tensors."""
        raise GraphError(f"{type(self).__name__} has no forward method ({', '.join(user_line())})")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`, its nodes named after the attribute that holds this module."""
        builder = current_builder()
        name = self._name_in(builder)
        _running.modules.append(self)
        _running.names.append({})
        try:
            with builder.module(name, self.training) if name else builder.mode(self.training):
                outputs = self.forward(*args, **kwargs)
                for hook in getattr(self, "_hooks", ()):
                    given = hook(self, args, outputs)
                    outputs = outputs if given is None else given
                return outputs
        except GraphError as problem:
            self._add_path(problem, ".".join([*builder.modules, *([name] if name else [])]))
            raise
        finally:
            _running.modules.pop()
            _running.names.pop()

    def _add_path(self, problem: GraphError, path: str) -> None:
        """Note at an error in `forward` the path of the innermost layer that it comes from."""
        notes = getattr(problem, "__notes__", [])
        if path and not any(note.startswith("in layer ") for note in notes):
            problem.add_note(f"in layer {path}: {type(self).__name__}({self.describe()})")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing_method(type(self).__name__, name), name=name, obj=self)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return found if name.startswith("__") else as_read(found)

    def __setattr__(self, name: str, value: Any) -> None:
        held = vars(self).get(name)
        if isinstance(held, Buffer) and innermost_builder() is not None:
            return held.become(value)
        if isinstance(held, Parameter) and not isinstance(value, Parameter | Module | None):
            raise GraphError(
                f"{type(self).__name__}: {name} holds a parameter, got {type(value).__name__}; "
                f"{name}.assign(array) or load_state_dict overwrite its contents "
                f"({', '.join(user_line())})"
            )
        changes.count += 1
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        changes.count += 1
        super().__delattr__(name)

    @property
    def training(self) -> bool:
        """Whether this module trains, which decides for dropout and for norms that keep running
        statistics: what `train` or `eval` said last. Where neither was called it is as in the
        module that calls this one, in the outermost as compile's `training` says; True outside of
        a traced function."""
        if hasattr(self, "_own_training"):
            return self._own_training
        builder = innermost_builder()
        return True if builder is None else builder.training

    @training.setter
    def training(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise GraphError(
                f"{type(self).__name__}: training expected True or False, got {mode!r} "
                f"({', '.join(user_line())})"
            )
        self._own_training = mode

    def register_forward_hook(self, hook: ForwardHook) -> Callable[[], None]:
        """Call `hook(module, arguments, outputs)` behind each `forward` in the functions that are
        traced from now on; what it returns, if it is not None, takes the place of the outputs.
        `lambda m, x, y: graphc.show(y, "fc1")` shows them. Gives a function that ends it."""
        if not callable(hook):
            raise GraphError(
                f"{type(self).__name__}: register_forward_hook expected a function, got "
                f"{type(hook).__name__} ({', '.join(user_line())})"
            )
        if not hasattr(self, "_hooks"):
            self._hooks = []
        hooks = self._hooks
        hooks.append(hook)
        return lambda: hooks.remove(hook)

    def train(self, mode: bool = True) -> Self:
        """Let this module and all inside it train in the programs compiled from now on, or with
        False not. Programs that are there already stay as they are."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """`train(False)`: dropout passes everything, norms use their running statistics."""
        return self.train(False)

    def parameters(self) -> Iterator[Parameter]:
        """Every parameter once, those that are not trainable included."""
        return (parameter for _, parameter in self.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(path such as `block1.conv2.weight`, parameter), each parameter once."""
        return _once((n, p) for n, p in _walk(self, "", ()) if isinstance(p, Parameter))

    def modules(self) -> Iterator[Module]:
        """This module and every one inside it, each once."""
        return (module for _, module in self.named_modules())

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """(path such as `block1.conv2`, module), each module once; this one's path is empty."""
        inside = ((n, m) for n, m in _walk(self, "", ()) if isinstance(m, Module))
        return _once(iter([("", self), *inside]))

    def to(self, dtype: Any) -> Module:
        """This module with every float parameter converted to `dtype`, a float one such as
        "bfloat16". Programs that were compiled before must be compiled again."""
        try:
            kind = dtype_name(dtype)
        except GraphError as unknown:
            where = ", ".join(user_line())
            raise GraphError(f"{unknown}{device_hint(dtype)} ({where})") from None
        if kind not in FLOATS:
            raise GraphError(
                f"{type(self).__name__}: to expected a float dtype, got {dtype!r} "
                f"({', '.join(user_line())})"
            )
        for parameter in self.parameters():
            if parameter.dtype in FLOATS:
                parameter.state = StateBuffer(parameter.numpy(), kind)
        return self

    def state_dict(self) -> dict[str, Array]:
        """Path -> a copy of the parameter's contents as of the last finished step. A parameter
        that is held at two paths is there twice, as in PyTorch. bf16 comes as float32."""
        own = _saved(self)
        return snapshot({name: parameter.state for name, parameter in own})

    def state_types(self) -> dict[str, Type]:
        """Path -> the parameter's type, of what `state_dict` gives."""
        return {name: p.type for name, p in _saved(self)}

    def load_state_dict(self, state: Mapping[str, Any] | Module, strict: bool = True) -> None:
        """Overwrite the parameters with `state`: path -> array, or anything with `__array__`; or
        with those of another module.

        All or nothing: GraphError lists every missing and unexpected name (ignored unless
        `strict`) and every shape and dtype that does not fit, and then nothing is changed.
        """
        own = dict(_saved(self))
        state = mapping_of("load_state_dict", state)
        arrays = {name: as_array(name, state[name]) for name in own if name in state}
        problems: list[str] = []
        if strict:
            problems += [
                f"missing {name} : {p.type}" for name, p in own.items() if name not in state
            ]
            problems += [f"unexpected {name}" for name in state if name not in own]
        for name, array in arrays.items():
            if not fits(array, own[name].type):
                problems.append(f"{name}: expected {own[name].type}, got {describe(array)}")
        if problems:
            raise GraphError("\n  ".join([f"load_state_dict: {type(self).__name__}", *problems]))
        overwrite({name: own[name].state for name in arrays}, arrays)

    def own_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter) of those that are not a module's inside this one."""
        return ((n, p) for n, p in _members(self) if isinstance(p, Parameter))

    def summary(self) -> Summary:
        """A table of all modules, their parameters and how many numbers these are; prints, and
        shows in notebooks."""
        modules = self.named_modules()
        owned = ((path, type(m).__name__, list(m.own_parameters())) for path, m in modules)
        return summary_of(type(self).__name__, owned)

    def describe(self) -> str:
        """The arguments, as `repr` prints them."""
        return ""

    def __repr__(self) -> str:
        inner = [
            f"({name}): {member!r}".replace("\n", "\n  ")
            for name, member in _members(self)
            if isinstance(member, Module)
        ]
        if not inner:
            return f"{type(self).__name__}({self.describe()})"
        return "\n  ".join([f"{type(self).__name__}({self.describe()}", *inner]) + "\n)"

    def _name_in(self, builder: Builder) -> str:
        """This module's path below the module that calls it, or "" where it has none."""
        if _running.modules:
            names = _running.names[-1]
            if id(self) not in names:  # not looked at yet, or an attribute since
                caller = _running.modules[-1]
                inside = [*caller.named_modules(), *_members(caller)]
                names.update((id(m), (n, m)) for n, m in inside)
            return names.get(id(self), ("", self))[0]
        # Called by a plain function: the names of its parameters say where it is.
        for name, parameter in self.named_parameters():
            known = builder.known_name(parameter.state)
            if known.endswith("." + name):
                return known.removesuffix("." + name)
        return ""


class _Running(threading.local):
    """The modules whose `forward` this thread runs at this moment, outermost first."""

    def __init__(self) -> None:
        self.modules: list[Module] = []
        self.names: list[dict[int, tuple[str, Any]]] = []
        """What lies in each of them, by its identity, and the path to it: that of an attribute if
        there is one. Of no module before one is called in it."""


_running = _Running()


def _named_after(cls: type, function: Any) -> Any:
    """A copy of `function` as if `cls` defined it."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    functools.update_wrapper(copy, function)
    del copy.__wrapped__  # type: ignore[attr-defined]
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = f"{cls.__qualname__}.{function.__name__}"
    return copy


def _members(module: Module) -> Iterator[tuple[str, Parameter | Module]]:
    """What the attributes of `module` hold, its own parameters first."""
    found = [
        (path, leaf)
        for name, value in vars(module).items()
        for path, leaf in tree.leaves(value, name)
        if isinstance(leaf, (Parameter, Module))
    ]
    yield from (item for item in found if isinstance(item[1], Parameter))
    yield from (item for item in found if isinstance(item[1], Module))


def _walk(
    module: Module, prefix: str, above: tuple[Module, ...]
) -> Iterator[tuple[str, Parameter | Module]]:
    """Every path below `module`. A module that holds one above it is not followed upwards."""
    for name, member in _members(module):
        if isinstance(member, Parameter):
            yield prefix + name, member
        elif not any(member is m for m in (*above, module)):
            yield prefix + name, member
            yield from _walk(member, f"{prefix}{name}.", (*above, module))


def _saved(module: Module) -> Iterator[tuple[str, Parameter]]:
    """What `state_dict` holds of `module`, each path of a parameter."""
    found = ((n, p) for n, p in _walk(module, "", ()) if isinstance(p, Parameter))
    return ((name, parameter) for name, parameter in found if parameter.persistent)


def _once(items: Iterator[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    """The first path of each object."""
    seen: set[int] = set()
    for name, item in items:
        if id(item) not in seen:
            seen.add(id(item))
            yield name, item


def mapping_of(function: str, source: Any) -> Mapping[str, Any]:
    """`source` if it is a mapping, what its `state_dict` gives if it has one, else GraphError."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, type) and callable(getattr(source, "state_dict", None)):
        state: Mapping[str, Any] = source.state_dict()
        return state
    hint = "; load_weights reads a file" if isinstance(source, str | os.PathLike) else ""
    raise GraphError(
        f"{function}: expected a module or a mapping of names to arrays, "
        f"got {type(source).__name__}{hint} ({', '.join(user_line())})"
    )


def as_array(name: str, value: Any) -> Array:
    """`value` as a NumPy array, or GraphError. PyTorch's tensors may need gradients or lie on
    another device."""
    for method in ("detach", "cpu"):
        value = getattr(value, method, lambda value=value: value)()
    try:
        array = host_array(value, name)
    except TypeError as error:
        raise GraphError(f"{name}: {type(value).__name__} gives no array: {error}") from None
    return array


def fits(array: Array, expected: Type) -> bool:
    """Whether `array` may be written into a buffer of that type."""
    return array.shape == expected.shape and can_hold(expected.numpy_dtype, array.dtype)


def describe(array: Array) -> str:
    """Dtype and shape, as a type prints."""
    try:
        return str(Type(array.shape, dtype_name(array.dtype)))
    except GraphError:
        return f"{array.dtype}[{','.join(map(str, array.shape))}]"
