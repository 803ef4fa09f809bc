"""Batches: which samples, in which order, from which sources, in which memory."""

from __future__ import annotations

import json
import re
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.data import Batches
from tests.tools import need_module

LINE = r"( \(test_batches\.py:\d+\))?"
X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10, dtype=np.int32)


class Samples:
    """A dataset as PyTorch's."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> Any:
        return self.samples[number]


class AtOnce(Samples):
    """One that loads several samples together."""

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return [self.samples[number] for number in numbers]

    def __getitem__(self, number: int) -> Any:
        raise AssertionError("one sample was asked for")


def rows(batches: Batches) -> list[list[int]]:
    """The labels of each batch of an epoch."""
    return [y.tolist() for _, y, *_ in batches]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("shuffle", [None, 7])
@pytest.mark.parametrize("last", ["drop", "pad", "bucket"])
def test_an_epoch_gives_every_sample_once(prefetch: int, shuffle: int | None, last: str) -> None:
    batches = Batches((X, Y), 4, shuffle=shuffle, last=last, prefetch=prefetch)
    for _ in range(2):
        given = list(batches)
        assert len(given) == len(batches) == (2 if last == "drop" else 3)
        for x, y, *_ in given:
            assert x.dtype == np.float32 and y.dtype == np.int32 and x.flags.c_contiguous
            assert (x == X[y]).all()
        kept = np.concatenate(
            [y if last != "pad" else y[weight[0] == 1] for _, y, *weight in given]
        )
        assert len(set(kept.tolist())) == len(kept) == (8 if last == "drop" else 10)
        assert [len(y) for _, y, *_ in given][2:] == {"drop": [], "pad": [4], "bucket": [2]}[last]


@pytest.mark.parametrize("shuffle", [None, 7])
def test_samples_that_are_left_out_are_not_read(shuffle: int | None) -> None:
    asked: list[int] = []

    class Counting(Samples):
        def __getitem__(self, number: int) -> Any:
            asked.append(number)
            return super().__getitem__(number)

    given = list(Batches(Counting(Y.tolist()), 4, shuffle=shuffle))
    assert asked == [y for batch in given for y in batch.tolist()] and len(asked) == 8


def test_a_padded_batch_repeats_its_last_sample_with_a_weight_of_zero() -> None:
    *_, (x, y, weight) = Batches((X, Y), 4, last="pad")
    assert y.tolist() == [8, 9, 9, 9] and weight.tolist() == [1, 1, 0, 0]
    assert weight.dtype == np.float32 and (x == X[y]).all()
    *_, named = Batches({"y": Y}, 4, last="pad", shuffle=0)
    assert list(named) == ["y", "weight"] and len(set(named["y"].tolist())) == 2
    *_, alone = Batches(Y, 4, last="pad")
    assert alone[1].tolist() == [1, 1, 0, 0]
    *_, streamed = Batches(lambda: iter(range(5)), 4, last="pad")
    assert [a.tolist() for a in streamed] == [[4, 4, 4, 4], [1, 0, 0, 0]]


def test_each_epoch_has_an_order_of_its_own_that_the_seed_determines() -> None:
    first, second = (Batches((X, Y), 5, shuffle=3) for _ in range(2))
    orders = [rows(first) for _ in range(3)]
    assert orders == [rows(second) for _ in range(3)]
    assert orders[0] != orders[1] != orders[2]
    assert orders[0] != rows(Batches((X, Y), 5, shuffle=4))


Pair = namedtuple("Pair", "x y")


def test_a_batch_has_the_structure_of_the_source() -> None:
    batch = next(iter(Batches({"a": (X, Y), "b": Y}, 4)))
    assert batch["a"][0].shape == (4, 2) and batch["b"].tolist() == [0, 1, 2, 3]
    assert next(iter(Batches(Pair(X, Y), 4))).y.tolist() == [0, 1, 2, 3]
    assert next(iter(Batches(X, 4))).shape == (4, 2)


@pytest.mark.parametrize("kind", [Samples, AtOnce, list, lambda s: lambda: iter(s)])
def test_samples_are_stacked(kind: Any) -> None:
    samples = [{"x": X[i], "label": i, "many": [0.5, i], "pair": (i, np.int64(i))} for i in Y]
    samples = [{**s, "label": int(s["label"])} for s in samples]
    batch = next(iter(Batches(kind(samples), 3)))
    assert (batch["x"] == X[:3]).all() and batch["label"].dtype == np.int32
    assert batch["many"].dtype == np.float32 and batch["many"].shape == (3, 2)
    assert batch["pair"][1].dtype == np.int64 and batch["pair"][1].tolist() == [0, 1, 2]
    assert next(iter(Batches(list(range(5)), 3))).tolist() == [0, 1, 2]
    assert next(iter(Batches([[X[0], 1], [X[1], 2]], 2)))[0].shape == (2, 2)
    assert next(iter(Batches([2**40, 1], 1))).dtype == np.int64
    assert next(iter(Batches([True, False], 2))).dtype == bool


def test_a_mapped_file_is_a_source(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    batches = Batches((tmp_path / "x.npy", str(tmp_path / "y.npy")), 4, shuffle=2)
    assert rows(batches) == rows(Batches((X, Y), 4, shuffle=2))
    x = next(iter(batches))[0]
    assert type(x) is np.ndarray
    assert (next(iter(Batches(tmp_path / "x.npy", 4))) == X[:4]).all()


def test_tensors_and_datasets_of_pytorch_are_sources() -> None:
    torch = need_module("torch")
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    assert rows(Batches((x, y), 4, shuffle=0)) == rows(Batches((X, Y), 4, shuffle=0))
    dataset = torch.utils.data.TensorDataset(x, y)
    assert rows(Batches(dataset, 4, shuffle=0)) == rows(Batches((X, Y), 4, shuffle=0))
    part = torch.utils.data.Subset(dataset, [3, 5, 8])
    assert rows(Batches(part, 3)) == [[3, 5, 8]]


def test_memory_is_used_again_unless_somebody_holds_it() -> None:
    batches = Batches((X, Y), 1, prefetch=2)
    assert len({x.ctypes.data for x, _ in batches}) <= 4
    held = list(Batches((X, Y), 1, prefetch=2))
    assert [int(y[0]) for _, y in held] == Y.tolist()
    views = [memoryview(y)[:1] for _, y in Batches((X, Y), 1, prefetch=2)]
    assert [view[0] for view in views] == Y.tolist()


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("source", ["arrays", "dataset", "stream"])
@pytest.mark.parametrize("at", range(7))
def test_a_position_leads_to_the_next_batch(prefetch: int, source: str, at: int) -> None:
    given = {
        "arrays": (X, Y),
        "dataset": Samples([*zip(X, Y, strict=True)]),
        "stream": lambda: zip(X, Y, strict=True),
    }[source]

    def new() -> Batches:
        seed = None if source == "stream" else 5
        return Batches(given, 3, shuffle=seed, last="bucket", prefetch=prefetch)

    def two_epochs(batches: Batches) -> list[tuple[str, list[int]]]:
        """Each batch of the first two epochs, with the position behind it."""
        found = []
        while batches.position["epoch"] < 2:
            for _, y in batches:
                found.append((json.dumps(batches.position), y.tolist()))
        return found

    whole = two_epochs(new())
    assert len(whole) == 8
    resumed = new()
    resumed.position = json.loads(whole[at][0])
    assert two_epochs(resumed) == whole[at + 1 :]


def test_a_loop_after_one_that_was_left_is_the_next_epoch() -> None:
    batches, other = Batches((X, Y), 5, shuffle=1), Batches((X, Y), 5, shuffle=1)
    for _ in batches:
        break
    assert batches.position["epoch"] == 0 and batches.position["batch"] == 1
    rows(other)
    assert rows(batches) == rows(other)


def test_a_training_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    def run(stop: int | None) -> list[float]:
        graphc.seed(0)
        model = nn.Linear(2, 1)
        step = graphc.compile(
            lambda m, x, y: graphc.mse_loss(m(x)[:, 0], y),
            model,
            graphc.spec((3, 2)),
            graphc.spec((3,)),
            update=optim.Adam(lr=0.1),
            device="reference",
        )
        batches = Batches((X, Y.astype(np.float32)), 3, shuffle=1)
        found = graphc.load_checkpoint(tmp_path, step) if stop is None else None
        if found is not None:
            batches.position = found.data
        losses = []
        while batches.position["epoch"] < 3:
            for x, y in batches:
                losses.append(float(step(x, y)))
                if len(losses) == stop:
                    graphc.save_checkpoint(tmp_path, stop, step, data=batches.position)
        return losses

    assert run(4)[4:] == run(None)


# fmt: off
WRONG = [
    (lambda: Batches((X, Y[:9]), 4),
     "Batches: expected arrays of one number of rows, got source.0 10, source.1 9"),
    (lambda: Batches(X, 0), "Batches: size expected a whole number from 1 up, got 0"),
    (lambda: Batches(X, True), "Batches: size expected a whole number from 1 up, got True"),
    (lambda: Batches(X, 2.0), "Batches: size expected a whole number from 1 up, got 2.0"),
    (lambda: Batches(X, 2, shuffle=True), "Batches: shuffle expected a seed from 0 up, got True"),
    (lambda: Batches(X, 2, prefetch=-1),
     "Batches: prefetch expected a whole number from 0 up, got -1"),
    (lambda: Batches(X, 2, last="keep"),
     "Batches: last expected 'drop', 'pad', 'bucket', got 'keep'"),
    (lambda: Batches(X, 11),
     "Batches: expected at least size=11 samples, got 10; last='pad' or 'bucket' gives the smaller "
     "batch"),
    (lambda: Batches(X[:0], 1), "Batches: expected samples, got none"),
    (lambda: Batches({}, 1), "Batches: expected arrays, got none"),
    (lambda: Batches(3, 1),
     "Batches: expected arrays, the name of a .npy file, a dataset or an iterable of samples, got "
     "int"),
    (lambda: Batches((X, np.float32(1)), 1),
     "Batches: source.1: expected rows of numbers, got a number"),
    (lambda: Batches(np.array(["a"]), 1),
     "Batches: source: expected rows of numbers, got dtype <U1"),
    (lambda: Batches("x.npz", 1), "Batches: source: expected a .npy file, got x.npz"),
    (lambda: Batches("absent.npy", 1),
     "Batches: source: cannot read absent.npy: [Errno 2] No such file or directory: 'absent.npy'"),
    (lambda: Batches(iter("ab"), 1, shuffle=0),
     "Batches: shuffle expected a source with a length, got an iterable"),
    (lambda: list(Batches(["a"], 1)), "Batches: sample 0: expected numbers, got str"),
    (lambda: list(Batches([print], 1)),
     "Batches: sample 0: expected numbers, got builtin_function_or_method"),
    (lambda: list(Batches([[[1], [1, 2]]], 1)),
     "Batches: sample 0: expected rows of one length in a list"),
    (lambda: list(Batches([(1, 2), (1,)], 2)),
     "Batches: sample 1: expected ['sample.0', 'sample.1'], got ['sample.0']"),
    (lambda: list(Batches([X[0], X[0, :1]], 2)),
     "Batches: sample 1: sample expected float32[2] as in the first of the batch, got float32[1]"),
    (lambda: setattr(Batches(X, 2), "position", 3),
     "Batches: position expected a dict of epoch, batch, rows, size, shuffle, last, got 3"),
    (lambda: setattr(Batches(X, 2), "position", Batches(X, 3).position),
     "Batches: position expected size 2, got one of 3"),
    (lambda: setattr(Batches(X, 2), "position", {**Batches(X, 2).position, "batch": 6}),
     "Batches: position expected at most 5 batches, got 6"),
    (lambda: setattr(Batches(X, 2), "position", {**Batches(X, 2).position, "epoch": -1}),
     "Batches: position: epoch expected a whole number from 0 up, got -1"),
]
# fmt: on


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_mistake_is_named(make: Any, message: str) -> None:
    with pytest.raises(GraphError, match=f"^{re.escape(message)}{LINE}$"):
        make()


def test_an_iterator_lasts_for_one_epoch() -> None:
    batches = Batches(iter(range(4)), 2)
    assert [b.tolist() for b in batches] == [[0, 1], [2, 3]]
    message = (
        "Batches: the iterator was used up by an earlier epoch; give the function that returns it, "
        "or an iterable that begins anew"
    )
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        list(batches)
    with pytest.raises(TypeError, match=r"^Batches of an iterable have no len\(\)$"):
        len(batches)
