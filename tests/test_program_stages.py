"""The stages of a program, and its constants."""

import numpy as np
import pytest

import graphc
from tests.support.program import XS, YS, X, trainer


def test_stages_hold_the_graph_after_each_pass():
    assert list(trainer().stages) == [
        "trace",
        "store_or_recompute_traced",
        "simplify",
        "commute",
        "hoist",
        "differentiate",
        "store_or_recompute",
        "clean",
        "hoist_gradient",
        "clean_hoisted",
        "recompute",
        "split_strides",
        "split_joins",
        "place_constants",
        "widen",
        "select_iterations",
        "fuse_contract",
        "fuse_attend",
        "fuse_axis",
        "fuse_pointwise",
        "fuse_updates",
        "layout",
        "lane_weights",
        "channel_lanes",
        "channels_last",
        "fuse_columns",
        "fuse_rows",
        "fuse_products",
        "order_turns",
        "fuse_multiply_add",
        "order_sums",
    ]


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_large_constants_are_state_that_nothing_updates(device):
    table = np.arange(24, dtype=np.float32).reshape(4, 6)
    program = graphc.compile(lambda x: x + table, X, device=device)
    np.testing.assert_array_equal(program(XS), XS + table)
    assert program.state_dict() == {}


def test_constants_of_the_same_bytes_and_other_types_are_two():
    floats, integers = np.zeros((4, 6), np.float32), np.zeros((4, 6), np.int32)
    flat = np.zeros(24, np.float32)
    program = graphc.compile(
        lambda x: (x + floats, x.astype("int32") + integers, graphc.flatten(x, 0) + flat),
        X,
        device="reference",
    )
    np.testing.assert_array_equal(program(XS)[0], XS)
    np.testing.assert_array_equal(program(XS)[1], XS.astype(np.int32))
    np.testing.assert_array_equal(program(XS)[2], XS.ravel())


@pytest.mark.parametrize("name", ["simplify", "commute", "clean", "fuse_updates", "layout"])
def test_optional_passes_may_be_left_out(name):
    reference = trainer()
    train = trainer(device="cpu", disable=(name,))
    assert name not in train.stages
    for _ in range(3):
        assert float(train(XS, YS)) == pytest.approx(float(reference(XS, YS)), rel=1e-5)


def test_one_name_may_be_disabled_as_it_is() -> None:
    assert "commute" not in trainer(device="reference", disable="commute").stages
    assert "commute" in trainer(device="reference").stages
