"""compile() and the program: arguments, calls, errors, state."""

import re

import numpy as np
import pytest

import graphc
from graphc import optim
from tests.support.program import XS, YS, Mlp, X, Y, loss_fn, trainer


def message(error):
    return re.sub(r"(test_)?program\.py:\d+", "test_program.py:N", str(error.value))


def test_a_wrong_shape_names_the_input_and_what_was_expected():
    with pytest.raises(graphc.GraphError) as error:
        trainer()(XS[:, :5], YS)
    assert message(error) == "loss_fn: x is f32[4,6], got float32[4,5]"


def test_another_batch_size_names_compile():
    with pytest.raises(graphc.GraphError) as error:
        trainer()(XS[:3], YS)
    assert message(error) == (
        "loss_fn: x is f32[4,6], got float32[3,6]; "
        "shapes are fixed, but a program of graphc.spec(('batch', 6)) takes every size"
    )


def test_a_wrong_dtype_is_an_error():
    with pytest.raises(graphc.GraphError) as error:
        trainer()(XS.astype(np.float64), YS)
    assert message(error) == (
        "loss_fn: x is f32[4,6], got float64[4,6]; x.astype('float32') converts it"
    )


def test_missing_arrays_are_listed():
    with pytest.raises(graphc.GraphError) as error:
        trainer()(XS)
    assert message(error) == "loss_fn: expected 2 arguments (x f32[4,6], y i32[4]), got 1"


def test_a_failed_call_changes_no_state():
    train = trainer()
    before = train.state_dict()
    with pytest.raises(graphc.GraphError):
        train(XS[:3], YS)
    for name, value in train.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"device": "tpu"}, "device: expected cpu, cuda, cuda:N, sim or reference, got 'tpu'"),
        ({"streams": 9}, "streams: expected a whole number from 1 to 8 or auto, got 9"),
        (
            {"precision": "float8"},
            "precision: expected 'float32', 'float32x3', 'winograd', 'tf32' or 'bfloat16', "
            "got 'float8' (test_program.py:N)",
        ),
        (
            {"disable": ("fuse",)},
            "disable: expected names of store_or_recompute_traced, store_or_recompute, "
            "simplify, commute, hoist, clean, hoist_gradient, clean_hoisted, recompute, "
            "split_strides, split_joins, fuse_updates, layout, lane_weights, channel_lanes, "
            "channels_last, fuse_columns, fuse_rows, fuse_products, by_step, join_launches, got "
            "'fuse'",
        ),
    ],
)
def test_bad_options_say_what_was_expected(options, expected):
    with pytest.raises(graphc.GraphError) as error:
        trainer(**options)
    assert message(error) == expected


def test_an_argument_that_is_no_spec_is_an_error():
    with pytest.raises(graphc.GraphError) as error:
        graphc.compile(loss_fn, Mlp(), b"x", Y)
    assert message(error) == (
        "argument x: expected a module, a graphc.spec or an array, got bytes (test_program.py:N)"
    )


@pytest.mark.parametrize(
    ("fn", "args", "options", "expected"),
    [
        (Mlp, (X,), {}, "expected a function or a module, got the class Mlp"),
        (
            loss_fn,
            (Mlp, X, Y),
            {},
            "argument model: expected a module, a graphc.spec or an array, got the class Mlp",
        ),
        (
            Mlp(),
            (X,),
            {"update": optim.SGD},
            "update: expected a rule such as graphc.optim.SGD(lr=0.1), got the class SGD",
        ),
        (Mlp(), (X,), {"training": "no"}, "training: expected True, False or None, got 'no'"),
    ],
)
def test_typical_slips_are_named(fn, args, options, expected):
    with pytest.raises(graphc.GraphError) as error:
        graphc.compile(fn, *args, device="reference", **options)
    assert message(error) == f"{expected} (test_program.py:N)"


PAIR = {"a": graphc.spec((1,)), "b": graphc.spec((1,))}
ZERO, ONE = np.zeros(1, np.float32), np.ones(1, np.float32)


def test_a_dict_is_matched_by_its_keys():
    program = graphc.compile(lambda d: d["a"] - d["b"], PAIR, device="reference")
    assert program({"a": ZERO, "b": ONE}) == program({"b": ONE, "a": ZERO}) == -1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": ZERO, "c": ONE}, "expected a dict with the keys ['a', 'b'], got keys ['a', 'c']"),
        (
            {"a": ZERO, "b": ONE, "c": ONE},
            "expected a dict with the keys ['a', 'b'], got keys ['a', 'b', 'c']",
        ),
        ({"a": ZERO}, "expected a dict with the keys ['a', 'b'], got keys ['a']"),
        ((ZERO, ONE), "expected a dict with the keys ['a', 'b'], got tuple"),
    ],
)
def test_another_structure_than_that_of_the_specs_is_an_error(value, expected):
    program = graphc.compile(lambda d: d["a"] - d["b"], PAIR, device="reference")
    with pytest.raises(graphc.GraphError) as error:
        program(value)
    assert message(error) == f"function: d: {expected}"


def test_a_tuple_of_another_length_is_an_error():
    program = graphc.compile(lambda p: p[0] + p[1], (X, X), device="reference")
    with pytest.raises(graphc.GraphError) as error:
        program((XS, XS, XS))
    assert message(error) == "function: p: expected a tuple or list of 2 items, got 3 items"


def test_python_numbers_stand_for_scalars_and_lists_are_refused():
    program = graphc.compile(lambda x, s: x * s, X, graphc.spec(()), device="reference")
    np.testing.assert_array_equal(program(XS, 2), XS * 2)
    with pytest.raises(graphc.GraphError) as error:
        program(XS.tolist(), 2)
    assert message(error) == (
        "function: x: expected an array (f32[4,6]), got list; numpy.asarray makes one"
    )


def test_another_byte_order_is_an_error():
    with pytest.raises(graphc.GraphError) as error:
        trainer()(XS.astype(">f4"), YS)
    assert message(error) == ("loss_fn: x is f32[4,6], got float32[4,6] of the other byte order")


def test_a_program_goes_on_from_its_saved_state():
    train = trainer(update=optim.Adam(lr=0.1))
    train(XS, YS)
    saved = train.state_dict()
    expected = [float(train(XS, YS)) for _ in range(3)]
    train.load_state_dict(saved)
    assert [float(train(XS, YS)) for _ in range(3)] == expected
    saved["fc9.weight"] = saved.pop("fc1.weight")
    saved["fc2.bias"] = np.zeros(7, np.float32)
    with pytest.raises(graphc.GraphError) as error:
        train.load_state_dict(saved)
    assert message(error) == (
        "load_state_dict: loss_fn\n  missing fc1.weight : f32[5,6]\n  unexpected fc9.weight\n"
        "  fc2.bias: expected f32[3], got f32[7]"
    )


def test_a_programs_state_is_loaded_whole_or_not_at_all():
    train = trainer(update=optim.Adam(lr=0.1))
    train(XS, YS)
    before = train.state_dict()
    state = {name: array + 1 for name, array in before.items()}
    state["step"] = np.array(2.5)
    with pytest.raises(graphc.GraphError) as error:
        train.load_state_dict(state)
    assert message(error) == "load_state_dict: loss_fn\n  step: expected i32[], got f64[]"
    with pytest.raises(graphc.GraphError) as error:
        train.load_state_dict({**state, "step": before["step"], "fc2.bias": object()})
    assert message(error) == "load_state_dict: loss_fn\n  fc2.bias: expected f32[3], got object[]"
    for name, array in train.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_dumps_of_one_name_go_to_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHC_DUMP", str(tmp_path))
    trainer()
    trainer(update=None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["loss_fn", "loss_fn-2"]
    assert not (tmp_path / "loss_fn-2" / "03-differentiate.txt").exists()


def test_a_dump_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRAPHC_DUMP", str(tmp_path / "file"))
    with pytest.raises(graphc.GraphError) as error:
        trainer()
    assert str(error.value) == (
        f"cannot write the dump to {tmp_path / 'file' / 'loss_fn'}: Not a directory"
    )


def test_argnums_beyond_the_arguments_are_an_error():
    with pytest.raises(graphc.GraphError) as error:
        graphc.trace(graphc.grad(lambda x: graphc.sum(x), argnums=3), X)
    assert message(error) == "argnums: expected 0 to 0, got 3 (test_program.py:N)"


def test_every_public_function_can_be_called():
    assert all(callable(getattr(graphc, name)) for name in graphc.functions.__all__)


def test_a_loss_with_axes_is_an_error():
    with pytest.raises(graphc.GraphError) as error:
        graphc.compile(lambda m, x: m(x), Mlp(), X, update=optim.SGD(lr=0.1))
    assert message(error) == (
        "the loss is a scalar of a float dtype, got f32[4,3] (test_program.py:N)"
    )


def test_a_loss_without_parameters_is_an_error():
    with pytest.raises(graphc.GraphError) as error:
        graphc.compile(lambda x: graphc.sum(x), X, update=optim.SGD(lr=0.1))
    assert message(error) == (
        "with update=, the loss depends on trainable parameters, found none among the arguments: "
        "give the module to compile as an argument (test_program.py:N)"
    )


@pytest.mark.parametrize(("frozen", "found"), [
    (True, "all that it reads are frozen"),
    (False, "it reads none of those of the arguments"),
])  # fmt: skip
def test_a_loss_without_parameters_that_may_change_is_an_error(frozen: bool, found: str):
    model = Mlp()
    for parameter in model.parameters():
        parameter.trainable = not frozen
    loss = (lambda m, x: graphc.sum(m(x))) if frozen else (lambda m, x: graphc.sum(x))
    with pytest.raises(graphc.GraphError) as error:
        graphc.compile(loss, model, X, update=optim.SGD(lr=0.1))
    assert message(error) == (
        f"with update=, the loss depends on trainable parameters, {found} (test_program.py:N)"
    )


def test_a_wrong_shape_in_the_model_names_the_line():
    with pytest.raises(graphc.GraphError) as error:
        graphc.trace(lambda x, y: x @ y, X, X)
    assert message(error).endswith("(test_program.py:N)")


def test_a_traced_tensor_has_no_truth_value():
    with pytest.raises(graphc.GraphError) as error:
        graphc.trace(lambda x: x if x else -x, graphc.spec(()))
    assert message(error) == (
        "a traced tensor has no truth value: the graph is the same for every input; "
        "use graphc.where(condition, a, b) (test_program.py:N)"
    )


def test_a_function_outside_a_trace_says_where_it_belongs():
    with pytest.raises(graphc.GraphError) as error:
        graphc.exp(1.0)
    assert message(error) == (
        "graphc functions work on traced tensors: call them inside a function that is given "
        "to graphc.compile or graphc.trace (test_program.py:N)"
    )


def test_a_memory_limit_is_known_before_anything_runs(monkeypatch):
    monkeypatch.setenv("GRAPHC_MEMORY_LIMIT", "64")
    with pytest.raises(graphc.RunError) as error:
        trainer(device="cpu")
    first, second, *held = str(error.value).splitlines()
    assert re.fullmatch(
        r"loss_fn: the plan takes \d+ bytes of work memory, memory= or GRAPHC_MEMORY_LIMIT allows "
        r"64; nothing has run, state is unchanged",
        first,
    )
    assert re.fullmatch(r"  at its peak, step \d+ \(\w+\), it holds:", second)
    assert all(re.fullmatch(r" +\d+ bytes  \S+  # .*program\.py:\d+.*", line) for line in held)


def test_memory_is_a_limit_or_asks_for_a_search(monkeypatch):
    monkeypatch.setenv("GRAPHC_MEMORY_LIMIT", "64")
    peak = trainer(device="cpu", memory="1M").plan.peak_bytes
    assert trainer(device="cpu", memory=peak).plan.peak_bytes == peak
    with pytest.raises(graphc.RunError, match=rf"takes \d+ bytes .* allows {peak // 4};"):
        trainer(device="cpu", memory=peak // 4)
    monkeypatch.delenv("GRAPHC_MEMORY_LIMIT")
    assert trainer(device="cpu", memory="search").plan.peak_bytes <= peak


def test_cuda_programs_are_printed_and_planned_on_any_machine():
    train = trainer(device="cuda")
    assert all('extern "C" __global__' in source for source in train.kernels.values())


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_programs_of_a_model_share_its_parameters(device):
    model = Mlp()
    train = graphc.compile(loss_fn, model, X, Y, update=optim.SGD(lr=0.5), device=device)
    infer = graphc.compile(model, X, device=device)
    before = infer(XS)
    losses = [float(train(XS, YS)) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert not np.array_equal(infer(XS), before)
    probabilities = infer(XS)
    np.testing.assert_array_equal(infer(XS), probabilities)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_results_are_fresh_arrays_in_the_functions_structure(device):
    program = graphc.compile(lambda x: {"twice": x * 2.0, "both": (x + 1.0, x)}, X, device=device)
    first, second = program(XS), program(XS)
    np.testing.assert_array_equal(first["twice"], XS * 2)
    np.testing.assert_array_equal(first["both"][0], XS + 1)
    np.testing.assert_array_equal(first["both"][1], XS)
    first["twice"][:] = 0
    first["both"][1][:] = 0
    np.testing.assert_array_equal(second["twice"], XS * 2)
    assert not np.shares_memory(second["both"][1], XS)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_the_learning_rate_changes_without_compiling(device):
    train = trainer(device=device)
    train(XS, YS)
    train.lr = 0.0
    before = train.state_dict()["fc1.weight"]
    train(XS, YS)
    np.testing.assert_array_equal(train.state_dict()["fc1.weight"], before)
    assert train.lr == 0.0


def test_strided_and_read_only_arrays_are_accepted():
    program = graphc.compile(lambda x: x * 2.0, graphc.spec((6, 4)), device="cpu")
    view = XS.T
    view.flags.writeable = False
    np.testing.assert_array_equal(program(view), view * 2)
