"""Tables of wrong calls and the messages that they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.trace import Builder


@dataclass(frozen=True)
class Failure:
    """A call on tensors of the types `inputs`, such as "f32[2,3]", and its message."""

    message: str
    function: Callable[..., Any]
    inputs: tuple[str, ...]

    def __str__(self) -> str:
        return self.message

    def check(self) -> None:
        """Assert that the call raises GraphError with the message and the user's line: that of
        the function if a test wrote it, else that of the call below."""
        builder = Builder("errors")
        with builder.building():
            tensors = [builder.input(f"x{i}", _type(t)) for i, t in enumerate(self.inputs)]
            with pytest.raises(GraphError) as error:
                self.function(*tensors)
        code = self.function.__code__
        name, line = Path(code.co_filename).name, code.co_firstlineno
        if not name.startswith("test_"):
            name, line = Path(__file__).name, CALL_LINE
        assert str(error.value) == f"{self.message} ({name}:{line})"


SOURCE = Path(__file__).read_text().splitlines()
CALL_LINE = 1 + [line.strip() for line in SOURCE].index("self.function(*tensors)")


def _type(text: str) -> Type:
    dtype, _, extents = text.rstrip("]").partition("[")
    return Type(tuple(int(n) for n in extents.split(",") if n), dtype)
