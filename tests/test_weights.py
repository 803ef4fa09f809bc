"""Weights files: what is written is read, and files that are not whole are refused."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.program.weights import load_weights, save_weights
from tests.tools import need_module


def test_a_module_is_restored_exactly(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    first, second = (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)) for _ in range(2))
    save_weights(path, first)
    second.load_state_dict(load_weights(path))
    for name, array in first.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[name], array)
        assert second.state_dict()[name].dtype == array.dtype
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_arrays_that_are_not_contiguous_are_written_as_they_read(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2]
    save_weights(tmp_path / "a", {"a": array, "empty": np.zeros((0, 3)), "rank0": np.float64(2)})
    loaded = load_weights(tmp_path / "a")
    np.testing.assert_array_equal(loaded["a"], array)
    assert loaded["empty"].shape == (0, 3) and loaded["rank0"] == 2


def test_pytorch_reads_the_file_and_writes_one(tmp_path: Path) -> None:
    torch = need_module("torch")
    need_module("safetensors")
    from safetensors.torch import load_file, save_file

    ours, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    save_weights(tmp_path / "ours", ours)
    theirs.load_state_dict(load_file(tmp_path / "ours"))
    np.testing.assert_array_equal(theirs.weight.detach().numpy(), ours.weight.numpy())
    save_file({"weight": theirs.weight.detach() + 1, "bias": theirs.bias.detach()}, tmp_path / "t")
    ours.load_state_dict(load_weights(tmp_path / "t"))
    np.testing.assert_array_equal(ours.weight.numpy(), theirs.weight.detach().numpy() + 1)


def test_a_program_and_a_rule_are_sources_too(tmp_path: Path) -> None:
    rule, layer = optim.Adam(), nn.Linear(3, 2)
    program = graphc.compile(
        lambda m, x: graphc.mean(m(x)), layer, graphc.spec((2, 3)), update=rule, device="reference"
    )
    for source in (program, rule):
        save_weights(tmp_path / "state", source)
        loaded = load_weights(tmp_path / "state")
        assert loaded.keys() == source.state_dict().keys()
    rule.load_state_dict(loaded)


def test_something_that_has_no_state_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        GraphError,
        match=r"^save_weights: expected a module or a mapping of names to arrays, got list "
        r"\(test_weights\.py:\d+\)$",
    ):
        save_weights(tmp_path / "state", [np.ones(2)])  # type: ignore[arg-type]


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    save_weights(path, nn.Linear(3, 2))
    whole = path.read_bytes()
    for length in (0, 4, 40, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(
            GraphError, match=rf"^load_weights: {re.escape(str(path))} is not a whole safetensors "
            r"file: .+$",
        ):  # fmt: skip
            load_weights(path)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    import pickle

    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (ran,)

    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(GraphError, match=r"^load_weights: .+ is not a whole safetensors file: .+$"):
        load_weights(path)
    assert not ran.exists()


def test_a_dtype_that_numpy_lacks_is_named(tmp_path: Path) -> None:
    torch = need_module("torch")
    need_module("safetensors")
    from safetensors.torch import save_file

    path = tmp_path / "eight_bits"
    save_file({"a": torch.zeros(2, dtype=torch.float8_e5m2)}, path)
    with pytest.raises(
        GraphError,
        match=rf"^load_weights: {re.escape(str(path))} holds 'F8_E5M2', a dtype that NumPy lacks$",
    ):
        load_weights(path)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_two_bytes_are_files_of_torch_and_back(tmp_path: Path, dtype: str) -> None:
    torch = need_module("torch")
    need_module("safetensors")
    from safetensors.torch import load_file, save_file

    ours, theirs = nn.Linear(5, 3).to(dtype), torch.nn.Linear(5, 3).to(getattr(torch, dtype))
    save_file(theirs.state_dict(), tmp_path / "theirs")
    ours.load_state_dict(load_weights(tmp_path / "theirs"))
    for name, tensor in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[name], tensor.float().numpy())
    save_weights(tmp_path / "ours", ours)
    for name, tensor in load_file(tmp_path / "ours").items():
        assert tensor.dtype == getattr(torch, dtype)
        assert torch.equal(tensor, theirs.state_dict()[name])


def test_tensors_of_torch_in_bfloat16_are_loaded_and_saved(tmp_path: Path) -> None:
    torch = need_module("torch")
    tensor = torch.arange(12.0).reshape(3, 4).T.to(torch.bfloat16) / 7
    layer = nn.Linear(3, 4, bias=False)
    layer.load_state_dict({"weight": tensor})
    np.testing.assert_array_equal(layer.weight.numpy(), tensor.float().numpy())
    save_weights(tmp_path / "file", {"x": tensor})
    np.testing.assert_array_equal(load_weights(tmp_path / "file")["x"], tensor.float().numpy())


@pytest.mark.parametrize("length", range(1, 9))
def test_the_elements_begin_on_a_multiple_of_eight_bytes(tmp_path: Path, length: int) -> None:
    """As the format has it, whatever the names."""
    holder = nn.Module()
    setattr(holder, "w" * length, nn.Parameter(np.ones(3, np.float32)))
    save_weights(tmp_path / "file", holder.to("bfloat16"))
    assert int.from_bytes((tmp_path / "file").read_bytes()[:8], "little") % 8 == 0


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "model"
    shown = re.escape(str(path))
    with pytest.raises(
        GraphError, match=rf"^load_weights: cannot read {shown}: No such file or directory$"
    ):
        load_weights(path)
    with pytest.raises(
        GraphError, match=rf"^save_weights: cannot write {shown}: No such file or directory$"
    ):
        save_weights(path, nn.Linear(1, 1))


def test_a_failed_write_leaves_the_file_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    save_weights(path, nn.Linear(1, 1))
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        GraphError,
        match=rf"^save_weights: cannot write {re.escape(str(path))}: No space left on device$",
    ):
        save_weights(path, nn.Linear(9, 9))
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_threads_that_save_to_one_path_never_mix(tmp_path: Path) -> None:
    path, failures = tmp_path / "model", []

    def save(number: int) -> None:
        try:
            for _ in range(30):
                save_weights(path, {"a": np.full(200_000, number, np.float32)})
        except GraphError as error:
            failures.append(error)

    threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            array = load_weights(path)["a"]
            assert array.shape == (200_000,) and array.min() == array.max()
    assert not failures
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
