"""Each model in a process of its own, with a time limit, and what was found as JSON."""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.torch_models import language, own, timm_models, vision
from benchmarks.torch_models.check import check
from benchmarks.torch_models.models import ENTRIES
from benchmarks.torch_models.page import write
from benchmarks.torch_models.processes import Task, alone
from benchmarks.torch_models.times import BACKENDS, times

assert language and own and timm_models and vision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models; without any all of them")
    parser.add_argument("--out", type=Path, required=True, help="a folder for a file per model")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a model")
    parser.add_argument("--times", action="store_true", help="measure instead of checking")
    parser.add_argument("--backends", nargs="*", default=BACKENDS, help="which are measured")
    parser.add_argument(
        "--warm", action="store_true", help="measure with the caches that there are"
    )
    parser.add_argument("--page", type=Path, help="only write the table into this page")
    options = parser.parse_args()
    if options.page:
        return write(options.out, options.page)
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.names or list(ENTRIES)
    measured = partial(times, backends=options.backends, cold=not options.warm)
    task: Task = measured if options.times else check
    for i, name in enumerate(names, 1):
        begin = time.perf_counter()
        found = alone(task, name, options.limit)
        keep(options.out / f"{name.replace(' ', '_').replace(',', '')}.json", name, found)
        seconds = time.perf_counter() - begin
        print(f"{i}/{len(names)} {name}: {said(found)} ({seconds:.0f} s)", flush=True)


def keep(path: Path, name: str, found: dict[str, Any]) -> None:
    """Write what was found of a model beside what the file has of it; a failure is forgotten when
    the same is done again."""
    before = json.loads(path.read_text()) if path.exists() else {}
    before.pop("failed", None)
    path.write_text(json.dumps({**before, "name": name, "package": ENTRIES[name].package, **found}))


def said(found: dict[str, Any]) -> str:
    """A line for the terminal."""
    if "failed" in found:
        return f"FAILED: {found['failed'].splitlines()[-1]}"
    if "eager_ms" in found:
        return ", ".join(f"{k} {v:.3g}" for k, v in found.items() if k != "note")
    wrong = "; ".join(found["wrong"][:3])
    text = f"{len(found['wrong'])} WRONG of {found['results']}: {wrong}" if wrong else "right"
    parts = f"{found['share']:.1%} of {found['operators']} operators compiled"
    return f"{text}, {found['use']:.2f} of what is allowed, {parts}"


if __name__ == "__main__":
    main()
