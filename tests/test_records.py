"""graphc's dataclasses behave as the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from functools import cached_property
from typing import ClassVar

import pytest

from graphc.base import records
from tests.tools import run_python

DECORATORS = (records.dataclass, dataclasses.dataclass)


def classes(dataclass):
    """Classes with all that graphc's classes have, by one decorator."""

    @dataclass(frozen=True)
    class Empty:
        pass

    @dataclass(frozen=True)
    class Base:
        kind: ClassVar[str] = "base"
        x: int
        order: str = field(default="", kw_only=True)

        @cached_property
        def twice(self):
            return 2 * self.x

    @dataclass(frozen=True)
    class Child(Base):
        names: list[str] = field(default_factory=list)
        note: str = field(default="quiet", compare=False)
        hidden: int = field(default=0, repr=False)

        def __post_init__(self):
            assert self.x >= 0, "negative"

    @dataclass(frozen=True)
    class Named:
        name: str
        size: int

        def __hash__(self):
            return hash(self.name)

        def __eq__(self, other):
            return isinstance(other, Named) and self.name == other.name

    @dataclass(frozen=True)
    class Compared:
        name: str

        def __eq__(self, other):
            return True

    @dataclass(frozen=True)
    class Worded(Named):
        size: int = 3

        def __repr__(self):
            return self.name

    @dataclass(frozen=True)
    class Later:
        x: int
        y: int = field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "y", self.x + 1)

    @dataclass(frozen=True)
    class Latest(Later):
        z: int = 0

    @dataclass
    class Thawed:
        x: int = 1

    return Empty, Base, Child, Named, Compared, Worded, Later, Latest, Thawed


def results(dataclass):
    """What the classes of a decorator do, in a form that can be compared."""
    made = classes(dataclass)
    empty, base, child, named, compared, worded, later, latest, thawed = made

    def failing(function, *args, **kwargs):
        with pytest.raises(Exception) as caught:
            function(*args, **kwargs)
        return type(caught.value), str(caught.value)

    one, other = child(1, ["a"], note="n"), child(1, ["a"])
    yield [
        repr(x)
        for x in (empty(), base(2, order="o"), one, worded("w"), later(4), latest(4), thawed())
    ]
    yield one == other, one == child(2, ["a"]), base(1) == one, base(1) != 1, empty() == empty()
    yield named("a", 1) == named("a", 2), compared("a") == compared("b"), later(1) == later(1)
    yield [hash(x) == hash(y) for x, y in ((base(1), base(1)), (named("a", 1), named("a", 2)))]
    yield hash(empty()), hash(base(1)), hash(base(2, order="x")), hash(compared("a"))
    yield failing(hash, one), failing(hash, thawed())
    yield child(1).names is child(1).names, one.twice, one.twice, child.kind
    for function in (setattr, lambda x, n, _: delattr(x, n)):
        yield failing(function, one, "x", 2), failing(function, one, "strange", 2)
    yield failing(base), failing(base, 1, 2), failing(base, 1, y=2), failing(child, -1)
    for change in ({}, {"x": 5}, {"order": "n", "names": []}):
        for replace in (dataclasses.replace, records.replace):
            yield repr(replace(other, **change)), replace(other, **change) == other
    yield failing(records.replace, one, y=2), failing(records.replace, later(1), y=2)
    yield repr(records.replace(later(1), x=3)), repr(records.replace(thawed(), x=3))
    yield dataclasses.asdict(one), dataclasses.is_dataclass(one), one.__dict__
    for each in made:
        fields = dataclasses.fields(each)
        yield [(f.name, f.type, f.compare, f.repr, f.kw_only, f.init) for f in fields]
        parameters = inspect.signature(each).parameters.values()
        yield [(p.name, p.kind, str(p.annotation)) for p in parameters]
        yield [p.default for p in parameters if isinstance(p.default, (int, str))]
        yield each.__match_args__, each.__init__.__qualname__, each.__init__.__module__
        yield sorted(
            n for n in vars(each) if n not in ("__doc__", "_arguments", "_shown", "__hash__")
        )
    yield repr(copy.deepcopy(one)), copy.copy(one) == one


def test_classes_behave_as_those_of_the_standard_decorator():
    ours, standard = (list(results(decorator)) for decorator in DECORATORS)
    assert ours == standard


@dataclasses.dataclass(frozen=True)
class Derived(records.dataclass(frozen=True)(type("Own", (), {"__annotations__": {"x": "int"}}))):
    y: int = 2


@records.dataclass(frozen=True)
class Further(Derived):
    z: int = 3


def test_classes_derive_from_each_other_whichever_decorator_made_them():
    assert repr(Derived(1)) == "Derived(x=1, y=2)"
    assert repr(Further(1, z=5)) == "Further(x=1, y=2, z=5)"
    assert pickle.loads(pickle.dumps(Further(1))) == Further(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Further(1).x = 2
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclasses.dataclass(type("Thawed", (Further,), {}))


def test_a_recursive_text_ends():
    @records.dataclass(frozen=True)
    class Chain:
        links: list[object]

    chain = Chain([])
    chain.links.append(chain)
    assert "links=[...]" in repr(chain)


def test_few_classes_of_graphc_are_made_by_the_standard_decorator(tmp_path):
    program = """
import dataclasses
standard, own = [], dataclasses._process_class

def counted(cls, init, *options):
    if init:
        standard.append(cls.__qualname__)
    return own(cls, init, *options)

dataclasses._process_class = counted
import graphc
from graphc import nn
graphc.compile(nn.Linear(3, 2), graphc.spec((2, 3)), device="cpu", streams=1)
print(len(standard), *standard)
"""
    count, *names = run_python(
        "-c", program, environment={"GRAPHC_CACHE_DIR": str(tmp_path)}
    ).split()
    assert int(count) < 20, names
