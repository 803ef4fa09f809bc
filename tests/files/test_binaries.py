"""Compiled kernels in files: run only where the user trusts them, and then without a compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import CompileError, GraphError, PlanError
from graphc.runtime.compilers.translation_units import object_of
from tests.files.rewriting import joined, rewritten, split
from tests.files.training import data, loss_fn
from tests.tools import run_python

X = graphc.spec((6, 4))
LOAD = """
import sys, numpy as np, graphc
from tests.files.training import data
step = graphc.load(sys.argv[1], trusted=True, threads=2)
print(b"".join(step(*data(number)).tobytes() for number in range(2, 4)).hex())
print(step.lr, sorted(step.state_dict()), len(step.stages) > 10)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[graphc.Program, bytes]:
    graphc.seed(0)
    model = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 2))
    path = tmp_path_factory.mktemp("whole") / "program"
    step = graphc.compile(
        loss_fn, model, X, graphc.spec((6, 2)), update=optim.SGD(lr=0.1), device="cpu"
    )
    for number in range(2):
        step(*data(number))
    step.save(path, binaries=True)
    return step, path.read_bytes()


def test_a_trusted_file_needs_no_compiler(
    saved: tuple[graphc.Program, bytes], tmp_path: Path
) -> None:
    step, content = saved
    (tmp_path / "f").write_bytes(content)
    empty = {"PATH": str(tmp_path), "CXX": "", "GRAPHC_CACHE_DIR": str(tmp_path / "cache")}
    said = run_python("-c", LOAD, str(tmp_path / "f"), environment=empty).splitlines()
    losses = b"".join(step(*data(number)).tobytes() for number in range(2, 4))
    assert said == [losses.hex(), f"0.1 {sorted(step.state_dict())} True"]
    assert not (tmp_path / "cache").exists()


def test_without_trust_nothing_of_it_is_run(
    saved: tuple[graphc.Program, bytes], tmp_path: Path
) -> None:
    header, elements = split(saved[1])
    content = bytearray(elements)
    for name, item in header.items():
        if name.startswith("object/"):
            begin, end = item["data_offsets"]
            content[begin:end] = bytes(end - begin)
    (tmp_path / "f").write_bytes(joined(header, bytes(content)))
    graphc.load(tmp_path / "f")(*data(0))
    with pytest.raises(GraphError, match=r"^load: \S+: the system refuses a binary: .+"):
        graphc.load(tmp_path / "f", trusted=True)


def test_files_without_binaries_and_for_others_are_refused(
    saved: tuple[graphc.Program, bytes], tmp_path: Path
) -> None:
    path, (_, content) = tmp_path / "f", saved

    def refused(edit: Any, kind: type[Exception], message: str) -> None:
        path.write_bytes(rewritten(content, edit))
        with pytest.raises(kind, match=message):
            graphc.load(path, trusted=True)

    refused(
        lambda d: d.update(binaries=None),
        GraphError,
        r"^load: \S+ holds no binaries: trusted=True has nothing to trust$",
    )
    refused(
        lambda d: d["binaries"]["version"].append("x"),
        GraphError,
        r": the binaries are of another version of graphc, Python or NumPy: load without "
        r"trusted=True compiles the kernels$",
    )
    refused(
        lambda d: d["binaries"]["features"].append("avx9"),
        GraphError,
        r": the binaries are for a CPU with avx9, which this one lacks: load without trusted=True "
        r"compiles the kernels$",
    )
    refused(
        lambda d: d["record"]["certificate"].update(digest="0"),
        PlanError,
        r"^load: the plan is [0-9a-f]{16}, the file's certificate is for 0$",
    )
    refused(
        lambda d: d["record"].update(plan=[0]),
        PlanError,
        r"^load: the plan cannot be read: TypeError: ",
    )
    refused(
        lambda d: d["binaries"].update(packed=[["a", 1]]),
        GraphError,
        r": binaries: no packed state",
    )
    refused(
        lambda d: d["binaries"].update(player="object/none"),
        GraphError,
        r": binaries: no array object/none$",
    )


def test_kernels_of_other_devices_are_no_binaries(tmp_path: Path) -> None:
    program = graphc.compile(graphc.relu, X, device="reference")
    with pytest.raises(
        GraphError, match=r"^save: binaries=True holds kernels for a CPU, relu is for reference$"
    ):
        program.save(tmp_path / "f", binaries=True)


def test_an_object_that_the_cache_has_lost_is_named() -> None:
    with pytest.raises(
        CompileError, match=r"^the cache of compiled kernels has lost none\.so: compile again$"
    ):
        object_of("none.so")


def test_packed_weights_are_packed_again(tmp_path: Path) -> None:
    layer = nn.Conv2d(3, 32, 3, padding=1)
    images = graphc.spec((2, 3, 16, 16))
    program = graphc.compile(layer, images, device="cpu")
    program.save(tmp_path / "f", binaries=True)
    x = np.random.default_rng(0).standard_normal((2, 3, 16, 16), np.float32)
    np.testing.assert_array_equal(graphc.load(tmp_path / "f", trusted=True)(x), program(x))


def test_the_settings_are_those_that_it_was_compiled_with(tmp_path: Path) -> None:
    layer = nn.Linear(4, 2)
    made = graphc.compile(layer, X, device="cpu", disable=["fuse_columns"], memory="lean")
    made.save(tmp_path / "f", binaries=True)
    trusted = graphc.load(tmp_path / "f", trusted=True)
    for name in ("disable", "memory_lean", "device"):
        assert getattr(trusted.recipe.settings, name) == getattr(made.recipe.settings, name), name
    assert "fuse_columns" not in trusted.stages
    trusted.save(tmp_path / "again", binaries=True)
    assert graphc.load(tmp_path / "again").recipe.settings.disable == made.recipe.settings.disable
