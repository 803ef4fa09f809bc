"""Generated CUDA kernels without a device: the nodes they are made of, what is near enough, and
what nvcc says of their registers. tests/sim/playing.py runs them on the simulated GPU."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc.base.target import Target
from graphc.ir import FLOATS, Graph, Node, Type, Value
from graphc.kernels.cuda.contract.tiles.tensor_tiles import GeneralTile, choices, several
from graphc.kernels.program.kernel import Kernel
from graphc.ops.base import Array, Op
from graphc.ops.fused import Fused, KernelNode
from graphc.runtime.cuda.compile import Usage, compile_cuda, parse_usage
from tests.tools import need_command, need_nvrtc

HERE = Path(__file__).parent
KERNELS = HERE.parent.parent / "kernels"
TARGET = Target("cuda", lanes=1, arch="sm_90a")


def single(op: Op, inputs: Sequence[Value], name: str) -> Node:
    """The fused node that computes `op` alone."""
    outputs = tuple(Value(f"y{i}", t) for i, t in enumerate(op.infer(*(v.type for v in inputs))))
    body = Graph(name, tuple(inputs), (), (Node(op, tuple(inputs), outputs),), outputs)
    return fused(body)


def fused(body: Graph) -> Node:
    """The fused node with this body."""
    return KernelNode(Fused(body.name, body), body.inputs, body.outputs)


def traced(name: str, fn: Callable[..., Any], *specs: Type) -> Node:
    """The fused node of one kernel that does all that `fn` does."""
    graph = graphc.trace(fn, *specs)
    inputs = (*graph.inputs, *graph.state)
    return fused(Graph(name, inputs, (), graph.nodes, graph.outputs))


def choose_tile(*sizes: int, **given: Any) -> tuple[GeneralTile, int]:
    """The cheapest tile of so many batches, rows, columns and k, and the parts of k."""
    return several(choices(*sizes, **given))[0][1:]


def arrays_of(node: Node, seed: int = 0) -> list[Array]:
    """One array per input: floats from a normal distribution, integers from 0 to 8."""
    random = np.random.default_rng(seed)
    return [
        random.standard_normal(v.type.shape).astype(v.type.numpy_dtype)
        if v.type.dtype in FLOATS
        else random.integers(0, 9, v.type.shape).astype(v.type.numpy_dtype)
        for v in node.inputs
    ]


def assert_close(got: Array, want: Array, length: int) -> None:
    """Equal but for the rounding of `length` sums of floats, in units of the largest element."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, float(finite.max(initial=0.0)))
    tolerance = 8 * np.sqrt(length) * float(np.finfo(got.dtype).eps) * scale
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, equal_nan=True)


def mistaken(header: str, *changes: tuple[str, str]) -> Callable[[str], str]:
    """What puts headers in place of their inclusion, in one of which each first string of `changes`
    has become its second, where it stands first."""

    def edited(source: str) -> str:
        met: set[str] = set()

        def text(found: re.Match[str]) -> str:
            path = KERNELS / found[1]
            name = path.stem
            if name in met:
                return ""
            met.add(name)
            lines = path.read_text().replace("#pragma once", "")
            for right, wrong in changes if name == header else ():
                assert right in lines, f"{name}.cuh no longer has {right!r}"
                lines = lines.replace(right, wrong, 1)
            return whole(lines)

        def whole(part: str) -> str:
            return re.sub(r'#include "(cuda/[\w/]+\.cuh)"', text, part)

        result = whole(source)
        assert header in met, f"the kernel does not include {header}.cuh"
        return result

    return edited


def joined(kernels: Sequence[Kernel]) -> str:
    return "\n".join(k.source for k in kernels)


def build_device(
    kernels: Sequence[Kernel], folder: Path, compiler: str, arch: str
) -> dict[str, Usage]:
    """Build kernels by nvcc, all in one file; the usage of each symbol."""
    text = folder / f"kernels_{arch}.cu"
    text.write_text(joined(kernels))
    command = [compiler, "-std=c++17", f"-arch={arch}", "-cubin", "-Xptxas", "-v"]
    command += ["-Werror", "all-warnings", "-I", str(KERNELS), str(text)]
    printed = _run([*command, "-o", str(text.with_suffix(".cubin"))])
    return parse_usage(printed)


def usage_of(kernel: Kernel, nvrtc: bool, arch: str, folder: Path) -> dict[str, Usage]:
    """The usage of each symbol of a kernel, built by NVRTC or by nvcc."""
    if not nvrtc:
        return build_device([kernel], folder, need_command("nvcc"), arch)
    need_nvrtc()
    return compile_cuda(kernel.source, kernel.name, arch).usage


def _run(command: Sequence[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr[:4000]}"
    return result.stdout + result.stderr
