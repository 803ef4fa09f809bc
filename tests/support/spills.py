"""Helpers of test_spills.py and of tests beside it."""

from __future__ import annotations

from collections.abc import Callable

from graphc.runtime.cuda.compile import CudaCompiler
from tests.tools import need_nvcc, need_nvrtc

NEEDED: dict[str, Callable[[], CudaCompiler]] = {"nvrtc": need_nvrtc, "nvcc": need_nvcc}
