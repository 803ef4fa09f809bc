"""Helpers of test_cuda_wgmma.py and of tests beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import convert
from graphc.ir import DTYPES, Node
from graphc.kernels.cuda.contract.contract_kernel import lower_contract
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.program.kernel import Kernel
from graphc.ops.pointwise.widen import Widen
from graphc.runtime.cuda.compile import compile_cuda
from graphc.trace import emit
from tests.kernels.cuda_harness import build_device, traced
from tests.support.cuda_tensor import EPS, transposed
from tests.tools import need_command, need_nvrtc


def assert_near(got: Any, want: Any, dtype: str, length: int) -> None:
    """Up to the rounding of `length` sums of float32, and of the results to `dtype`."""
    got, want = (np.asarray(x, np.float32) for x in (got, want))
    tolerance = (8 * np.sqrt(length) * EPS["float32"] + 2 * EPS[dtype]) * float(np.abs(want).max())
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


def operands(product: Node) -> list[Any]:
    random = np.random.default_rng(0)
    shapes = [v.type.shape for v in product.inputs]
    return [convert(random.standard_normal(s).astype("f4"), DTYPES["bf16"]) for s in shapes]


def product_node(m: int, k: int, n: int, turned: Sequence[bool] = (False, False)) -> Node:
    """The product of two matrices in bfloat16, each as it is or transposed."""

    def product(a: Any, b: Any) -> Any:
        views = (transposed(x) if t else x for x, t in zip((a, b), turned, strict=True))
        return graphc.matmul(*(emit(Widen(), x) for x in views))

    shapes = (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n)
    specs = [graphc.spec(s, "bfloat16") for s in shapes]
    return traced(f"product_{turned[0]:d}{turned[1]:d}", product, *specs)


def kernels(bulk: bool) -> list[Kernel]:
    """Of both operands in both orders, with the tile that is taken."""
    options = ContractOptions(warp_groups=True, bulk_copies=bulk)
    orders = [(a, b) for a in (False, True) for b in (False, True)]
    return [lower_contract(product_node(1000, 1032, 520, each), options) for each in orders]


def assert_spills_nothing(
    found: Sequence[Kernel], nvrtc: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By NVRTC or nvcc, whose products of warp groups are not serialized."""
    if not nvrtc:
        usage = build_device(found, folder, need_command("nvcc"), "sm_90a")
        assert [u.spilled for u in usage.values()] == [0] * len(usage)
        return
    need_nvrtc()
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(folder))
    for kernel in found:
        usage = compile_cuda(kernel.source, kernel.name, "sm_90a").usage
        assert all(u.spilled == 0 for u in usage.values())
    logs = [path.read_text() for path in folder.rglob("*.log")]
    assert len(logs) == len(found) and not any("serialized" in log for log in logs)
