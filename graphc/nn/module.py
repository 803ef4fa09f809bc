"""Modules: objects that hold parameters and other modules as attributes.

Nothing is registered. Parameters and submodules are found among attributes and in the lists,
tuples, dicts and dataclasses that they hold, so `super().__init__()` is not needed.

A program reads the parameters that it was compiled with. `weight.assign(array)` overwrites one.
Once another Parameter or Module replaces it, calling the program is an error.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, Self, TypeVar

from graphc.base.errors import GraphError
from graphc.base.source_lines import user_line
from graphc.ir import FLOATS, Array, Type, dtype_name, tree
from graphc.ir.state import StateBuffer, overwrite, snapshot
from graphc.nn.buffer import Buffer, as_read
from graphc.nn.missing import device_hint, missing_method
from graphc.nn.parameter import Parameter, changes
from graphc.nn.state_arrays import fitting
from graphc.nn.summary import Summary, summary_of
from graphc.trace import Builder, current_builder, innermost_builder

T = TypeVar("T")
ForwardHook = Callable[["Module", tuple[Any, ...], Any], Any]


class Module:
    """Base class of all layers and models; a subclass sets attributes and defines `forward`.

    Example:
        >>> class Scale(nn.Module):
        ...     def __init__(self):
        ...         self.factor = nn.Parameter([2.0])
        ...     def forward(self, x):
        ...         return self.factor * x
        ...
        >>> graphc.compile(Scale(), graphc.spec(2))(np.array([1, 2], np.float32))
        array([2., 4.], dtype=float32)
    """

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
        """Return the outputs for traced tensors; a subclass overrides it."""
        raise GraphError(f"{type(self).__name__} has no forward method ({', '.join(user_line())})")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`, and name its nodes after the attribute that holds this module."""
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
        """Whether this module trains, for dropout and for norms with running statistics.

        It is what `train` or `eval` set last. Before that it is the mode of the calling module, and
        of the outermost one compile's `training`; outside of traced functions it is True.
        """
        own, builder = getattr(self, "_own_training", None), innermost_builder()
        if builder is None:
            return own is not False
        own = builder.modes.get(id(self), own)
        return builder.training if own is None else own

    @training.setter
    def training(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise GraphError(
                f"{type(self).__name__}: training expected True or False, got {mode!r} "
                f"({', '.join(user_line())})"
            )
        self._own_training = mode

    def register_forward_hook(self, hook: ForwardHook) -> Callable[[], None]:
        """Call a function after each `forward` in functions that are traced from now on.

        Args:
            hook: A function of (module, arguments, outputs); what it returns, unless None, replaces
                the outputs.

        Returns:
            A function that removes the hook.

        Raises:
            GraphError: `hook` is not a function.

        Example:
            >>> layer = nn.Linear(2, 2)
            >>> remove = layer.register_forward_hook(lambda module, arguments, outputs: -outputs)
            >>> remove()
        """
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
        """Set the mode of this module and all inside it, for programs compiled from now on.

        Args:
            mode: Whether they train.
        """
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Set evaluation mode: dropout is off, and norms use their running statistics."""
        return self.train(False)

    def parameters(self) -> Iterator[Parameter]:
        """Iterate over all parameters, each once, also those that are not trainable."""
        return (parameter for _, parameter in self.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Iterate over (path, parameter), each parameter once.

        A path is like `block1.conv2.weight`.

        Example:
            >>> dict(nn.Linear(3, 2).named_parameters())
            {'weight': Parameter(f32[2,3]), 'bias': Parameter(f32[2])}
        """
        return _once((n, p) for n, p in _walk(self, "", ()) if isinstance(p, Parameter))

    def modules(self) -> Iterator[Module]:
        """Iterate over this module and all modules inside it, each once."""
        return (module for _, module in self.named_modules())

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Iterate over (path, module), each module once; the path of this module is empty.

        Example:
            >>> [name for name, _ in nn.Sequential(nn.ReLU(), nn.ReLU()).named_modules()]
            ['', '0', '1']
        """
        inside = ((n, m) for n, m in _walk(self, "", ()) if isinstance(m, Module))
        return _once(iter([("", self), *inside]))

    def to(self, dtype: Any) -> Module:
        """Convert all float parameters to another dtype.

        Programs that were compiled before must be compiled again.

        Args:
            dtype: A float dtype, such as "bfloat16".

        Raises:
            GraphError: `dtype` is no float dtype.
        """
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
        """Return copies of all parameters, as of the last finished step.

        A parameter that is held at two paths occurs twice, as in PyTorch. bf16 is returned as
        float32.

        Returns:
            A dict from paths to NumPy arrays.

        Example:
            >>> {name: array.shape for name, array in nn.Linear(3, 2).state_dict().items()}
            {'weight': (2, 3), 'bias': (2,)}
        """
        own = _saved(self)
        return snapshot({name: parameter.state for name, parameter in own})

    def state_types(self) -> dict[str, Type]:
        """Return a dict from paths to the types of what `state_dict` returns."""
        return {name: p.type for name, p in _saved(self)}

    def load_state_dict(self, state: Mapping[str, Any] | Module, strict: bool = True) -> None:
        """Overwrite the parameters; if anything does not fit, none is changed.

        Args:
            state: A dict from paths to arrays, or a module of the same structure.
            strict: Whether missing and unexpected names are errors.

        Raises:
            GraphError: A name is missing or unexpected, or a shape or dtype does not fit; the
                message lists all.

        Example:
            >>> model, copy = nn.Linear(3, 2), nn.Linear(3, 2)
            >>> copy.load_state_dict(model.state_dict())
        """
        own = dict(_saved(self))
        types = {name: parameter.type for name, parameter in own.items()}
        arrays = fitting(type(self).__name__, state, types, strict)
        overwrite({name: own[name].state for name in arrays}, arrays)

    def own_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Iterate over (path, parameter) of this module without the modules inside it."""
        return ((n, p) for n, p in _members(self) if isinstance(p, Parameter))

    def summary(self) -> Summary:
        """Return a table of all modules and their parameters, which prints and shows in notebooks.

        Example:
            >>> print(nn.Linear(3, 2).summary())
            Linear: 8 elements, 8 of them trainable, 32 bytes
            path  module  parameters                    elements
                  Linear  weight f32[2,3], bias f32[2]         8
        """
        modules = self.named_modules()
        owned = ((path, type(m).__name__, list(m.own_parameters())) for path, m in modules)
        return summary_of(type(self).__name__, owned)

    def describe(self) -> str:
        """Return the arguments as `repr` prints them."""
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
