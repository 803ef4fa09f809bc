"""PyTorch's operators one by one through `torch.compile(backend="graphc")`, beside eager.

    python -m benchmarks.torch_operators --out FILE [--dtype float32] [--samples 3] [NAME ...]

The judge is torchcts, a suite that validates backends: it says which operators there are (those of
PyTorch's OpInfo), draws their samples, puts NaN and infinities into some, and says how far a result
may be off. It knows backends as devices alone, therefore this file calls the operators. Each
operator has a process of its own; each sample is compiled alone, with its gradient if it has one.
FILE has a JSON line for each operator; those that it has are not run again. `--table` prints what
all of FILE comes to.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torchcts.core.comparer import (
    compare_inf_propagation,
    compare_nan_propagation,
    compare_tensors,
)
from torchcts.core.opinfo_adapter import (
    InputCondition,
    _ieee754_enabled_for_op,
    classify_sample,
    get_live_opinfo,
    prepare_sample,
    stabilize_sample_randomness,
)
from torchcts.opinfo.test_opinfo_forward import get_op_category

from benchmarks.limit import limited
from benchmarks.torch_models.check import Counts
from benchmarks.torch_models.processes import alone
from graphc.torch.backend import with_compiler

SECONDS = 90.0
"""That a sample may take, its compilers' time included."""
VERDICTS = ("right", "partly", "not offered", "as decomposed", "wrong", "slow", "no sample")
"""`right`: all of it is graphc's; `partly`: right, and PyTorch computes a part; `not offered`:
PyTorch computes it all, which is right as well; `as decomposed`: not as in eager, but as PyTorch's
own decompositions say, through its backend aot_eager_decomp_partition; `no sample`: PyTorch itself
has none on a CPU."""
UNSET = ("empty", "new_empty")
"""Operators whose results hold what the memory held before begin so."""
Call = Callable[..., Any]
Results = list[tuple[str, Any]]
"""Results and gradients of a call, by their places."""


def check(name: str, dtype: str, count: int) -> dict[str, Any]:
    """The verdict of an operator: the worst of its samples, of which `count` are taken evenly out
    of all, and one each with NaN and with infinities; `why` says more of what is wrong."""
    samples = [_sample(name, s, dtype, backward=True) for s in _even(_drawn(name, dtype), count)]
    special = _drawn(name, dtype, gradient=False) if _takes_special(name, dtype) else []
    for kind in (InputCondition.HAS_NAN, InputCondition.HAS_INF):
        prepared = (prepare_sample(s, kind, op_name=name) for s in special)
        fit = (s for s in prepared if classify_sample(s) == kind)
        samples += [_sample(name, s, dtype, kind=kind) for s in islice(fit, 1)]
    verdicts = Counter(verdict for verdict, _ in samples if verdict != "no sample")
    worst = max(verdicts, key=VERDICTS.index) if verdicts else "no sample"
    if worst in ("right", "not offered") and len(verdicts) > 1:
        worst = "partly"
    said = ("partly", "not offered") if worst == "partly" else (worst,)
    why = [text for verdict, text in samples if text and verdict in said]
    return {"verdict": worst, "samples": dict(verdicts), "why": why[:4]}


def _takes_special(name: str, dtype: str) -> bool:
    """Whether torchcts gives the operator NaN and infinities."""
    return getattr(torch, dtype).is_floating_point and _ieee754_enabled_for_op(name, True)


def _drawn(name: str, dtype: str, gradient: bool = True) -> list[Any]:
    operator, kind = get_live_opinfo(name), getattr(torch, dtype)
    if kind not in operator.dtypes:
        return []
    gradient &= operator.supports_autograd and kind in operator.backward_dtypes
    gradient &= kind.is_floating_point  # the backward dtypes of some name integers too
    torch.manual_seed(0)
    try:
        drawn = list(operator.sample_inputs("cpu", kind, requires_grad=gradient))
    except Exception:  # some operators have no samples on a CPU
        return []
    return [stabilize_sample_randomness(s, name) for s in drawn]


def _even(samples: list[Any], count: int) -> list[Any]:
    """The first, the last, and others between them."""
    places = {round(i * (len(samples) - 1) / max(1, count - 1)) for i in range(count)}
    return [samples[i] for i in sorted(places) if 0 <= i < len(samples)]


def _sample(
    name: str, sample: Any, dtype: str, kind: str = InputCondition.CLEAN, backward: bool = False
) -> tuple[str, str]:
    """(verdict, why) of one sample."""
    if classify_sample(sample) != kind:
        return "no sample", ""
    operator = get_live_opinfo(name).op

    def call(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    try:
        expected = _run(call, sample, 1, backward)
        again = _run(call, sample, 2, backward)
    except Exception as error:
        return "no sample", str(error)
    drawn = name.startswith(UNSET) or not _same(expected, again)
    compare = partial(_compare, name, dtype, kind, drawn)
    counts = Counts()
    try:
        with limited(SECONDS):
            found = _compiled(call, sample, backward, with_compiler(counts.watch))
    except TimeoutError:
        return "slow", ""
    differs = compare(found, expected)
    if differs and all(compare(found, e) for e in _otherwise(call, sample, backward)):
        other = _compiled(call, sample, backward, "aot_eager_decomp_partition")
        wrong = [place for place in compare(found, other) if place in differs]
        lines = "; ".join(f"{place}: {differs[place]}" for place in wrong or differs)
        return "wrong" if wrong else "as decomposed", f"{kind}: {_said(sample)}: {lines}"
    if not counts.taken:
        return "not offered", "; ".join(counts.refused) or "Dynamo makes no graph of it"
    return ("partly", "; ".join(counts.refused)) if counts.refused else ("right", "")


def _compiled(call: Call, sample: Any, backward: bool, backend: Any) -> Results:
    """What a backend finds, or the error that it raises."""
    torch._dynamo.reset()
    try:
        return _run(torch.compile(call, backend=backend), sample, 1, backward)
    except TimeoutError:
        raise
    except Exception as error:
        return [("error", f"{type(error).__name__}: {error}"[:1500])]


def _otherwise(call: Call, sample: Any, backward: bool) -> Iterator[Results]:
    """What eager gives where it may take other kernels, which have NaN and infinities elsewhere: on
    two threads, and in float32, rounded."""
    torch.set_num_threads(2)
    try:
        yield _run(call, sample, 1, backward)
    finally:
        torch.set_num_threads(1)
    narrow = sample.input.dtype if isinstance(sample.input, torch.Tensor) else torch.float32
    if narrow in (torch.bfloat16, torch.float16):
        wide = sample.transform(lambda x: x.float() if getattr(x, "dtype", None) == narrow else x)
        found = _run(call, wide, 1, backward)
        yield [
            (n, x.to(narrow) if torch.is_tensor(x) and x.is_floating_point() else x)
            for n, x in found
        ]


def _run(call: Call, sample: Any, seed: int, backward: bool) -> Results:
    """The results and gradients of one call, by their places."""
    args, kwargs = _copied((sample.input, *sample.args)), _copied(sample.kwargs)
    torch.manual_seed(seed)
    with torch.set_grad_enabled(backward):
        result = call(*args, **kwargs)
    found = list(_leaves(result, "result"))
    if not backward:
        return found
    project = sample.output_process_fn_grad or (lambda x: x)
    outputs = [t for _, t in _leaves(project(result), "") if _differentiable(t)]
    inputs = [(n, t) for n, t in _leaves([args, kwargs], "input") if _differentiable(t)]
    if outputs and inputs:
        ones = [torch.ones_like(t) for t in outputs]
        tensors = [t for _, t in inputs]
        gradients = torch.autograd.grad(outputs, tensors, ones, allow_unused=True)
        for (place, _), gradient in zip(inputs, gradients, strict=True):
            found.append((f"gradient of {place}", gradient))
    return found


def _compare(
    name: str, dtype: str, kind: str, drawn: bool, found: Results, expected: Results
) -> dict[str, str]:
    """What torchcts calls wrong, by its place; of what is drawn only the types are compared."""
    backward = "matmul_backward" if "mm" in name or "matmul" in name else "backward"
    wrong = {}
    if [place for place, _ in found] != [place for place, _ in expected]:
        return {found[0][0]: f"{found[0][1]}, with {len(found)} of {len(expected)} results"}
    for (place, a), (_, b) in zip(found, expected, strict=True):
        category = backward if place.startswith("gradient") else get_op_category(name)
        if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
            if not drawn and (type(a) is not type(b) or a != b):
                wrong[place] = f"{a} instead of {b}"
        elif (a.dtype, a.shape) != (b.dtype, b.shape):
            wrong[place] = f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        elif not drawn:
            a, b = a.detach(), b.detach()
            try:
                if kind == InputCondition.CLEAN:
                    compare_tensors(a, b, category, getattr(torch, dtype))
                elif b.is_floating_point():
                    compare_nan_propagation(a, b)
                    compare_inf_propagation(a, b)
            except AssertionError as error:
                wrong[place] = str(error)
    return wrong


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{place} {i}")
    else:
        yield place, value


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_copied(v) for v in value)
    return value


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _same(first: Results, second: Results) -> bool:
    """Whether two runs gave the same bits."""
    for (_, a), (_, b) in zip(first, second, strict=True):
        if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
            if a != b:
                return False
            continue
        try:
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        except AssertionError:
            return False
    return True


def _said(sample: Any) -> str:
    """The sample in a line."""

    def said(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, tuple | list):
            return f"({', '.join(map(said, value))})"
        return repr(value)

    given = [said(v) for v in (sample.input, *sample.args)]
    return ", ".join([*given, *(f"{k}={said(v)}" for k, v in sample.kwargs.items())])


def table(lines: Iterable[str]) -> str:
    """How many operators there are of each verdict, by dtype, and all that are wrong or slow."""
    counts: dict[str, Counter[str]] = {}
    samples: dict[str, Counter[str]] = {}
    wrong = []
    for found in map(json.loads, lines):
        counts.setdefault(found["dtype"], Counter())[found["verdict"]] += 1
        samples.setdefault(found["dtype"], Counter()).update(found["samples"])
        if found["verdict"] in ("wrong", "slow"):
            wrong.append(f"{found['name']} {found['dtype']}: {found['verdict']} {found['why'][:1]}")
    rows = [f"| | {' | '.join(VERDICTS)} |", f"| --- |{' --- |' * len(VERDICTS)}"]
    for title, kinds in (("operators", counts), ("samples", samples)):
        for dtype, numbers in kinds.items():
            rows.append(f"| {dtype}, {title} | {' | '.join(str(numbers[v]) for v in VERDICTS)} |")
    return "\n".join([*rows, "", *sorted(wrong)])


def operators() -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    return sorted({operator.name for operator in op_db})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="operators; without any all of them")
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=3, help="of each operator")
    parser.add_argument("--table", action="store_true", help="only print what was found")
    options = parser.parse_args()
    before = options.out.read_text().splitlines() if options.out.exists() else []
    if options.table:
        return print(table(before))
    done = {(d["name"], d["dtype"]) for d in map(json.loads, before)}
    torch.set_num_threads(1)
    # What a compiler loads once, each process then has from this one.
    torch.compile(torch.neg, backend="aot_eager_decomp_partition")(torch.ones(2))
    names = [n for n in options.names or operators() if (n, options.dtype) not in done]
    task = partial(check, dtype=options.dtype, count=options.samples)
    for i, name in enumerate(names, 1):
        found = alone(task, name, SECONDS * (options.samples + 2))
        if "failed" in found:
            verdict = "slow" if "took longer" in found["failed"] else "wrong"
            found = {"verdict": verdict, "samples": {verdict: 1}, "why": [found["failed"]]}
        with options.out.open("a") as file:
            file.write(json.dumps({"name": name, "dtype": options.dtype, **found}) + "\n")
        print(f"{i}/{len(names)} {name}: {found['verdict']} {found['why'][:1]}", flush=True)


if __name__ == "__main__":
    main()
