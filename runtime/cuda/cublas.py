"""Matrix products by cuBLASLt, where it is installed: `nvidia-cublas`, PyTorch's or a toolkit's.

Called by ctypes, as its interface in C is kept from version to version: the numbers here are those
of cublasLt.h. A matrix is there what runs down its columns, so d = a b is asked for as the
transposed product of what it takes for transposed matrices.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from graphc.base.errors import CompileError
from graphc.ir.state import ALIGNMENT
from graphc.kernels.program.calls import CallMatrix, Product

TYPES = {"f32": 0, "f16": 2, "bf16": 14}
"""cudaDataType_t."""
COMPUTE_32F = 68
"""cublasComputeType_t: products and sums are float32, and nothing is rounded to tf32."""
TRANSPOSED, EPILOGUE, BIAS_POINTER = {"a": 3, "b": 4}, 7, 8
"""cublasLtMatmulDescAttributes_t."""
BATCHES, BATCH_STRIDE = 5, 6
"""cublasLtMatrixLayoutAttribute_t."""
MOST_WORKSPACE, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)
"""cublasLtMatmulPreferenceAttributes_t."""
IN_WORKSPACE = 2
"""cublasLtReductionScheme_t: parts of k are added in float32 by a step of their own, in order."""
PLAIN, RELU, BIAS = 1, 2, 4
"""cublasLtEpilogue_t; the last two may be added."""
WORKSPACE = 8 << 20
"""Bytes that a product may use beside: what NVIDIA's own default was before Hopper. More lets it
cut k of larger products, and is work memory of the plan."""
PROPOSED = 3
"""Algorithms that the heuristic is asked for: each is a candidate to be measured."""


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class CublasLt:
    """The library for one device, whose context is current in every call here."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.cublasLtGetVersion.restype = c_size_t
        version = int(library.cublasLtGetVersion())
        self.title = f"cuBLASLt {version // 10000}.{version // 100 % 100}.{version % 100}"

    def prepare(self, product: Product) -> PreparedProduct:
        """The product, ready to be put on streams. CompileError if the library does not take it."""
        return PreparedProduct(self, product)

    @functools.cached_property
    def handle(self) -> c_void_p:
        """Made when it is first needed, and kept as long as the process."""
        return self.create("cublasLtCreate")

    def call(self, name: str, *arguments: Any) -> None:
        """CompileError, with the status, if the library does not take it."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise CompileError(f"{self.title}: {name} failed with status {status}")

    def create(self, name: str, *arguments: Any) -> c_void_p:
        """What a function makes by its first argument."""
        found = c_void_p()
        self.call(name, byref(found), *arguments)
        return found

    def set(self, kind: str, what: c_void_p, attribute: int, value: Any) -> None:
        self.call(
            f"cublasLt{kind}SetAttribute", what, attribute, byref(value), ctypes.sizeof(value)
        )


class PreparedProduct:
    """A product with its layouts and algorithm. What the library made lives as long as this."""

    def __init__(self, library: CublasLt, product: Product) -> None:
        self._library, self._product = library, product
        self._made: list[tuple[str, c_void_p]] = []
        m, n, k = product.m, product.n, product.k
        self._a = self._layout(product.b, *_lying(product.b, k, n))
        self._b = self._layout(product.a, *_lying(product.a, m, k))
        self._d = self._layout(product.d, n, m)
        self._algorithms = self._proposed()

    @property
    def count(self) -> int:
        """Algorithms that there are, at most `PROPOSED`."""
        return len(self._algorithms)

    @property
    def workspaces(self) -> list[int]:
        """The bytes of workspace that each algorithm takes."""
        return [WORKSPACE] * self.count

    def issue(
        self, rank: int, addresses: Sequence[int], stream: Any, **declared: Any
    ) -> Callable[[], None]:
        """What puts the product of what lies at the addresses of the kernel's arguments, the last
        of which is its workspace, on the stream, by the algorithm number `rank`. CompileError if
        there are not so many."""
        if rank >= self.count:
            raise CompileError(
                f"{self._library.title} has no algorithm {rank + 1} for this product"
            )
        algorithm = self._algorithms[rank].algorithm
        product, library = self._product, self._library
        bias = 0 if product.bias is None else addresses[product.bias]
        a, b, d = (c_void_p(addresses[x.argument]) for x in (product.b, product.a, product.d))
        description, one, zero = self._description(bias), c_float(1), c_float(0)
        workspace, handle = c_void_p(addresses[-1]), c_void_p(int(stream.handle))

        def issue() -> None:
            library.call(
                "cublasLtMatmul", library.handle, description, byref(one), a, self._a, b, self._b,
                byref(zero), d, self._d, d, self._d, byref(algorithm), workspace,
                c_size_t(WORKSPACE), handle,
            )  # fmt: skip

        return issue

    def _proposed(self) -> list[Heuristic]:
        library, kind = self._library, "MatmulPreference"
        preference = self._keep(kind)
        library.set(kind, preference, MOST_WORKSPACE, c_uint64(WORKSPACE))
        library.set(kind, preference, REDUCTIONS, c_uint32(IN_WORKSPACE))
        for attribute in ALIGNMENTS:
            library.set(kind, preference, attribute, c_uint32(ALIGNMENT))
        found, count = (Heuristic * PROPOSED)(), c_int()
        library.call(
            "cublasLtMatmulAlgoGetHeuristic", library.handle, self._description(ALIGNMENT),
            self._a, self._b, self._d, self._d, preference, PROPOSED, found, byref(count),
        )  # fmt: skip
        return [x for x in found[: count.value] if x.state == 0]

    def _description(self, bias: int) -> c_void_p:
        """What is computed; the bias, if there is one, lies at that address."""
        library, product = self._library, self._product
        made = self._keep("MatmulDesc", COMPUTE_32F, TYPES["f32"])
        for side, matrix in (("a", product.b), ("b", product.a)):
            turned = c_int32(matrix.column != 1)
            library.set("MatmulDesc", made, TRANSPOSED[side], turned)
        epilogue = (RELU * product.relu + BIAS * (product.bias is not None)) or PLAIN
        library.set("MatmulDesc", made, EPILOGUE, c_uint32(epilogue))
        if product.bias is not None:
            library.set("MatmulDesc", made, BIAS_POINTER, c_void_p(bias))
        return made

    def _layout(self, matrix: CallMatrix, rows: int, columns: int) -> c_void_p:
        library, kind = self._library, TYPES[matrix.dtype]
        sizes = c_uint64(rows), c_uint64(columns), c_int64(matrix.leading)
        made = self._keep("MatrixLayout", kind, *sizes)
        if self._product.batches > 1:
            library.set("MatrixLayout", made, BATCHES, c_int32(self._product.batches))
            library.set("MatrixLayout", made, BATCH_STRIDE, c_int64(matrix.batch))
        return made

    def _keep(self, kind: str, *arguments: Any) -> c_void_p:
        """What the library makes, to be given back with this."""
        made = self._library.create(f"cublasLt{kind}Create", *arguments)
        self._made.append((kind, made))
        return made

    def __del__(self) -> None:
        for kind, made in self._made:
            self._library.call(f"cublasLt{kind}Destroy", made)


def _lying(matrix: CallMatrix, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of what the library takes an operand of [rows, columns] for."""
    return (columns, rows) if matrix.column == 1 else (rows, columns)


def find_cublas() -> CublasLt | None:
    """The library, by cuda-pathfinder, which comes with cuda-bindings; None where it is not
    installed."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
        found = pathfinder.load_nvidia_dynamic_lib("cublasLt")
        return CublasLt(ctypes.CDLL(found.abs_path)) if found.abs_path else None
    except (ImportError, RuntimeError, OSError):
        return None
