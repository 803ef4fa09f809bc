"""The format of safetensors: what is written is read, here and by its library, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.base.dtypes import BFLOAT16
from graphc.files.fields import Fields, list_of, pairs_of
from graphc.files.safetensors import DTYPES, FormatError, file_parts, parsed
from tests.tools import need_module


def written(arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> Any:
    return np.frombuffer(b"".join(map(bytes, file_parts(arrays, metadata or {}))), np.uint8)


def headed(header: Any, content: bytes = b"") -> Any:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return np.frombuffer(len(text).to_bytes(8, "little") + text + content, np.uint8)


def item(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_dtype_is_read_as_it_was_written(dtype: Any) -> None:
    content = np.arange(24 * dtype.itemsize, dtype=np.uint8)
    if dtype == np.bool_:
        content %= 2
    arrays = {"one": np.ones((), np.uint8), "a": content.view(dtype).reshape(2, 3, 4)}
    arrays["none"] = np.zeros((0, 3), dtype)
    found, metadata = parsed(written(arrays, {"key": "text"}))
    assert metadata == {"key": "text"}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_the_library_reads_what_is_written_and_writes_what_is_read(tmp_path: Path) -> None:
    library = need_module("safetensors.numpy")
    arrays = {
        name: np.arange(6).astype(dtype).reshape(2, 3)
        for name, dtype in DTYPES.items()
        if dtype != BFLOAT16
    }
    theirs = library.load(written(arrays, {"a": "b"}).tobytes())
    ours, metadata = parsed(np.frombuffer(library.save(arrays, {"c": "d"}), np.uint8))
    assert metadata == {"c": "d"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(theirs[name], array)
        np.testing.assert_array_equal(ours[name], array)


WRONG: list[tuple[Any, bytes, str]] = [
    (b"", b"", "JSON: Expecting value"),
    (b"[]", b"", "the header is no JSON object"),
    (b'{"a": NaN}', b"", "JSON: NaN is no number of JSON"),
    (b'{"a": {}, "a": {}}', b"", "JSON: a name is given twice"),
    (b"[" * 100_000, b"", "JSON: maximum recursion depth"),
    (b'{"a": ' + b"9" * 5000 + b"}", b"", "JSON: Exceeds the limit"),
    ({"a": 1}, b"", "a: expected dtype, shape and data_offsets"),
    ({"a": {**item()["a"], "more": 1}}, b"0000", "a: expected dtype, shape and data_offsets"),
    (item(dtype=1), b"0000", "a: no dtype"),
    (item(dtype="C64"), b"0000", "C64"),
    (item(shape=[-1]), b"0000", "a: shape or offsets are no sizes"),
    (item(shape=[1.0]), b"0000", "a: shape or offsets are no sizes"),
    (item(shape=[True]), b"0000", "a: shape or offsets are no sizes"),
    (item(shape=[2**70]), b"0000", "a: shape or offsets are no sizes"),
    (item(offsets=[0]), b"0000", "a: shape or offsets are no sizes"),
    (item(offsets=[0, 8]), b"0000", "a: bytes 0 to 8 of 4"),
    (item(offsets=[4, 0]), b"0000", "a: bytes 4 to 0 of 4"),
    (item(shape=[2]), b"0000", r"a: F32\[2\] in 4 bytes"),
    (item(shape=[0, 2**62, 2**62], offsets=[0, 0]), b"", "a: no array has the shape"),
    (item(shape=[1] * 100), b"0000", "a: no array has the shape"),
    (item(), b"00001", "5 bytes of elements, the header says 4"),
    (item(offsets=[1, 5]), b"00000", "gaps or overlaps at byte 0"),
    ({**item(), "b": item()["a"]}, b"0000", "gaps or overlaps at byte 0"),
    (item("BOOL", [1], [0, 1]), b"\2", "a: a BOOL is neither 0 nor 1"),
    ({"__metadata__": {"a": 1}}, b"", "metadata is no dict of texts"),
]


@pytest.mark.parametrize(("header", "content", "message"), WRONG, ids=[w[2] for w in WRONG])
def test_anything_else_is_refused(header: Any, content: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=f"^{message}"):
        parsed(headed(header, content))


def test_short_files_and_long_headers_are_refused() -> None:
    for data in (b"", b"\1\0", b"\5" + bytes(7) + b"{}", b"\xff" * 64):
        with pytest.raises(FormatError, match=r"^\d+ bytes cannot hold the header$"):
            parsed(np.frombuffer(data, np.uint8))


def test_what_the_format_lacks_is_not_written() -> None:
    with pytest.raises(FormatError, match=r"^a is of complex64, which safetensors lacks$"):
        file_parts({"a": np.zeros(2, np.complex64)}, {})
    with pytest.raises(FormatError, match=r"^__metadata__ is no name of a tensor$"):
        file_parts({"__metadata__": np.zeros(2)}, {})


def test_fields_are_there_of_their_kind_and_no_others() -> None:
    fields = Fields({"a": 1, "b": True, "c": ["x"], "d": {"e": 1}, "f": {"g": "h"}}, "it")
    assert fields.take("a", int) == 1
    assert fields.texts("c") == ["x"]
    assert fields.fields("d").take("e", int) == 1
    assert fields.table("f", str) == {"g": "h"}
    with pytest.raises(FormatError, match=r"^it: unknown 'b'$"):
        fields.end()
    with pytest.raises(FormatError, match=r"^it: b: expected int or str, got bool$"):
        fields.take("b", int, str)
    with pytest.raises(FormatError, match=r"^it: z is missing$"):
        fields.take("z", int)
    with pytest.raises(FormatError, match=r"^it: expected an object, got list$"):
        Fields([], "it")
    with pytest.raises(FormatError, match=r"^it: expected a list of int$"):
        list_of([True], int, "it")
    with pytest.raises(FormatError, match=r"^it: expected a list of pairs$"):
        pairs_of([[1, 2], [3]], "it")
