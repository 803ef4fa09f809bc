"""The object that takes any size: its plans, what they share, what it tells, and its errors."""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from tests.tools import need_command, need_module

HERE = r" \(test_sized_programs\.py:\d+\)"


def raises(message: str, line: bool = False) -> Any:
    return pytest.raises(GraphError, match=f"^{re.escape(message)}{HERE if line else ''}$")


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    return graphc.mse_loss(model(x), y)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def trainer(**options: Any) -> Any:
    specs = graphc.spec(("batch", 3)), graphc.spec(("batch", 1))
    options = {"update": optim.SGD(lr=0.1, momentum=0.9), "device": "reference", **options}
    return graphc.compile(loss_fn, nn.Linear(3, 1), *specs, **options)


def doubled(**options: Any) -> Any:
    return graphc.compile(lambda x: 2 * x, graphc.spec(("batch", 3)), device="reference", **options)


def test_a_plan_is_made_when_a_size_is_first_met() -> None:
    program = doubled()
    assert program.sizes == []
    for size in (2, 5, 2, 1):
        np.testing.assert_array_equal(program(ones(size, 3)), 2 * ones(size, 3))
    np.testing.assert_array_equal(program(x=ones(5, 3)), 2 * ones(5, 3))
    assert program.sizes == [{"batch": 2}, {"batch": 1}, {"batch": 5}]
    assert repr(program) == "SizedProgram(function, reference, x f32[batch,3], 3 plans)"
    assert isinstance(program, graphc.SizedProgram) and isinstance(program, graphc.Program)


def test_the_program_of_one_size() -> None:
    program = doubled()
    at = program.at(batch=4)
    assert type(at) is graphc.Program and program.at(batch=4) is at
    assert at.graph.inputs[0].type.shape == (4, 3)
    np.testing.assert_array_equal(at(ones(4, 3)), 2 * ones(4, 3))
    assert program.sizes == [{"batch": 4}]
    with raises("function: x is f32[4,3], got float32[5,3]; shapes are fixed, but a program "
                "of graphc.spec(('batch', 3)) takes every size"):  # fmt: skip
        at(ones(5, 3))
    for sizes, got in (({}, "nothing"), ({"batch": 0}, "batch=0"), ({"time": 4}, "time=4")):
        with raises(f"function.at: expected positive batch=, got {got}", line=True):
            program.at(**sizes)


def test_what_belongs_to_one_size_says_so() -> None:
    program = doubled()
    start = "function: {} belongs to the program of one size, such as function.at(batch={}).{} "
    with raises(start.format("plan", 8, "plan") + "(sizes so far: none yet)", line=True):
        _ = program.plan
    program(ones(2, 3))
    told = {
        "graph": lambda: program.graph,
        "kernels": lambda: program.kernels,
        "stages": lambda: program.stages,
        "closures": lambda: program.closures,
        "memory()": lambda: program.memory(),
        "dump(folder)": lambda: program.dump("folder"),
        "profile_random_inputs()": lambda: program.profile_random_inputs(),
        "profile_at_exit()": lambda: program.profile_at_exit(),
        "report(path)": lambda: program.report("page.html"),
        "explain('add')": lambda: program.explain("add"),
    }
    for what, call in told.items():
        with raises(start.format(what, 2, what) + "(sizes so far: batch=2)", line=True):
            call()
    assert not hasattr(program, "other")
    with pytest.raises(AttributeError, match=r"^SizedProgram has no 'other'$"):
        _ = program.other


def test_reports_and_profiles_are_those_of_the_arrays(tmp_path: Any) -> None:
    program = graphc.compile(
        nn.Linear(3, 2), graphc.spec(("batch", 3)), device="cpu", batch=graphc.Buckets(4)
    )
    assert "profile Linear" in str(program.profile(ones(2, 3), repeats=1))
    program.report(tmp_path / "page.html", ones(2, 3), measure=False)
    assert "Linear" in (tmp_path / "page.html").read_text()
    assert program.sizes == [{"batch": 4}]
    assert "batch=4" in program._repr_html_()


def test_explain_says_which_plan_computes_a_size() -> None:
    program = doubled(batch=graphc.Buckets(4, 8))
    for size in (4, 3, 7):
        program(ones(size, 3))
    assert str(program.explain("batch")) == (
        "sizes of batch in function\n"
        "  what    batch=4, batch=8: a plan of its own\n"
        "  what    batch=3: padded to batch=4\n"
        "  what    batch=7: padded to batch=8"
    )
    step = trainer(batch=graphc.Buckets(4))
    step(ones(3, 3), ones(3, 1))
    assert str(step.explain("batch")).endswith(
        "batch=3: not padded to batch=4: an update depends on all that a step is given"
    )


def test_a_function_that_only_takes_one_size_is_not_padded() -> None:
    table = ones(3, 3)
    program = graphc.compile(
        lambda x: x + table, graphc.spec(("batch", 3)), device="reference", batch=graphc.Buckets(4)
    )
    np.testing.assert_array_equal(program(ones(3, 3)), 2 * ones(3, 3))
    assert "for that size, add: shapes do not broadcast" in str(program.explain("batch"))
    with pytest.raises(GraphError, match="do not broadcast") as found:
        program(ones(4, 3))
    assert "for batch=4" in found.value.__notes__


def test_state_is_shared_and_saved_as_one() -> None:
    step = trainer()
    message = "loss_fn: {} needs a plan, which says what state there is; loss_fn.at(batch=8) " \
        "makes one"  # fmt: skip
    for name in ("state_dict", "state_types"):
        with raises(message.format(name)):
            getattr(step, name)()
    with raises(message.format("load_state_dict")):
        step.load_state_dict({})
    assert step.lr == 0.1
    step.lr = 0.05
    step(ones(4, 3), ones(4, 1))
    saved = step.state_dict()
    assert set(saved) == {"weight", "bias", "momentum.weight", "momentum.bias", "step", "lr"}
    assert step.state_types().keys() == saved.keys()
    first = step(ones(2, 3), ones(2, 1))
    assert step.state_dict()["step"] == 2 and step.update.step == 2
    step.load_state_dict(saved)
    assert step(ones(2, 3), ones(2, 1)) == first
    again = trainer(update=optim.SGD(lr=0.05, momentum=0.9))
    again.at(batch=7)
    again.load_state_dict(saved)
    assert again(ones(2, 3), ones(2, 1)) == first
    step.lr = 0.0
    assert step.lr == 0.0 and step(ones(3, 3), ones(3, 1)) == step(ones(3, 3), ones(3, 1))


def test_draws_go_on_from_size_to_size() -> None:
    def drawn(**options: Any) -> Any:
        spec = graphc.spec(("batch", 50))
        return graphc.compile(graphc.dropout, spec, training=True, device="reference", **options)

    first, second, same = drawn(seed=3), drawn(), drawn(seed=3)
    a, b = first(ones(2, 50)), first(ones(3, 50))
    assert (a != b[:2]).any(), "the second call draws other numbers"
    assert (second(ones(2, 50)) != a).any(), "another program has another key"
    np.testing.assert_array_equal(same(ones(2, 50)), a)
    np.testing.assert_array_equal(same(ones(3, 50)), b)
    np.testing.assert_array_equal(first.state_dict()["random.step"], 2)
    saved = second.state_dict()
    expected = second(ones(4, 50))
    second.load_state_dict(saved)
    np.testing.assert_array_equal(second(ones(4, 50)), expected)


def test_modes_are_those_of_the_compile() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5).eval())
    spec = graphc.spec(("batch", 40))
    program = graphc.compile(model, spec, training=True, device="reference")
    assert (program(ones(2, 40)) == 0).any()
    model.eval()
    assert (program(ones(3, 40)) == 0).any()
    assert set(np.unique(program(ones(4, 40)))) == {0.0, 2.0}, "the second one stays off"
    assert (graphc.compile(model, spec, training=True, device="reference")(ones(3, 40)) == 1).all()


def test_a_model_that_changed_is_compiled_again() -> None:
    model = nn.Linear(3, 2)
    program = graphc.compile(model, graphc.spec(("batch", 3)), device="reference")
    program(ones(2, 3))
    model.weight.trainable = False
    with raises("Linear: was compiled when weight had trainable=True, now it has False: compile "
                "the function again", line=True):  # fmt: skip
        program(ones(3, 3))
    model.weight.trainable = True
    model.weight = nn.Parameter(ones(2, 3))
    for size in (2, 3):
        with raises("Linear: weight was replaced after compile: compile again", line=True):
            program(ones(size, 3))


def test_plans_beyond_the_limit_are_dropped() -> None:
    step = trainer()
    assert step.most_plans == 64
    step.most_plans = 2
    for size in (1, 2, 1, 3):
        step(ones(size, 3), ones(size, 1))
    assert step.sizes == [{"batch": 1}, {"batch": 3}]
    step(ones(2, 3), ones(2, 1))
    assert step.sizes == [{"batch": 3}, {"batch": 2}] and step.update.step == 5
    padded = doubled(batch=graphc.Buckets(2, 4))
    padded.most_plans = 1
    for size in (1, 3, 1):
        assert padded(ones(size, 3)).shape == (size, 3)
    assert padded.sizes == [{"batch": 2}]


def test_threads_that_meet_sizes_at_once() -> None:
    step, errors = trainer(), []

    def run(number: int) -> None:
        try:
            for size in (number % 3 + 1, 4, 5):
                step(ones(size, 3), ones(size, 1))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and step.update.step == 24
    assert sorted(s["batch"] for s in step.sizes) == [1, 2, 3, 4, 5]


def test_taps_and_static_arguments() -> None:
    def fn(x: Any, scale: float, pair: Any) -> Any:
        return {"a": graphc.tap(x * scale, "scaled"), "b": pair[0] + pair[1]}

    named, fixed = graphc.spec(("batch", 2)), graphc.spec(2)
    program = graphc.compile(fn, named, 3.0, (named, fixed), device="reference")
    for size in (2, 4):
        found = program(ones(size, 2), (ones(size, 2), ones(2)))
        np.testing.assert_array_equal(found["b"], 2 * ones(size, 2))
        np.testing.assert_array_equal(program.taps["scaled"], 3 * ones(size, 2))


def test_arrays_of_other_libraries() -> None:
    torch = need_module("torch")
    program = doubled(batch=graphc.Buckets(4))
    np.testing.assert_array_equal(program(torch.ones(3, 3)), 2 * ones(3, 3))
    np.testing.assert_array_equal(program(np.asfortranarray(ones(3, 3))), 2 * ones(3, 3))
    half = graphc.compile(
        lambda x: 2 * x, graphc.spec(("n",), "bf16"), sizes={"n": graphc.Buckets(4)},
        device="reference",
    )  # fmt: skip
    np.testing.assert_array_equal(half(ones(3)), 2 * ones(3))
    np.testing.assert_array_equal(half(torch.ones(3, dtype=torch.bfloat16)), 2 * ones(3))
    with raises("function: x is f32[batch,3], got torch.float32[3]; expected 2 axes"):
        program(torch.ones(3))


class OnDevice:
    """An array that says that it lies on a GPU; it has no `shape` of its own."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__cuda_array_interface__ = {"shape": array.shape, "typestr": array.dtype.str}

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return self.array


def test_arrays_on_a_device_are_not_padded() -> None:
    program = doubled(batch=graphc.Buckets(4))
    for _ in range(2):
        np.testing.assert_array_equal(program(OnDevice(ones(3, 3))), 2 * ones(3, 3))
    assert program.sizes == [{"batch": 3}]
    with raises("function: x is f32[batch,3], got [5,3]; expected batch of at most 4, its largest "
                "bucket, got 5"):  # fmt: skip
        program(OnDevice(ones(5, 3)))


def test_a_forked_process_makes_plans_of_its_own() -> None:
    step = trainer()
    step(ones(2, 3), ones(2, 1))
    child = os.fork()
    if not child:
        step(ones(3, 3), ones(3, 1))
        os._exit(len(step.sizes))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert step.sizes == [{"batch": 2}]


def test_arrays_that_do_not_fit_change_nothing() -> None:
    step = trainer(batch=graphc.Buckets(4))
    step(ones(4, 3), ones(4, 1))
    before = step.state_dict()
    x, y = "loss_fn: x is f32[batch,3], got ", "loss_fn: y is f32[batch,1], got "
    wrong = [
        ((ones(4, 3), ones(3, 1)), y + "float32[3,1]; expected batch 4 as in x, got 3"),
        ((ones(0, 3), ones(0, 1)), x + "float32[0,3]; expected batch of at least 1, got 0"),
        ((ones(5, 3), ones(5, 1)),
         x + "float32[5,3]; expected batch of at most 4, its largest bucket, got 5"),
        ((ones(3), ones(3, 1)), x + "float32[3]; expected 2 axes"),
        ((ones(3, 4), ones(3, 1)), "loss_fn: x is f32[3,3], got float32[3,4]"),
        ((ones(3, 3).astype("float64"), ones(3, 1)),
         "loss_fn: x is f32[3,3], got float64[3,3]; x.astype('float32') converts it"),
        ((ones(3, 3),), "loss_fn: expected 2 arguments (x f32[batch,3], y f32[batch,1]), got 1"),
        ((1.0, ones(3, 1)), "loss_fn: x: expected an array (f32[batch,3]), got float; "
         "numpy.asarray makes one"),
    ]  # fmt: skip
    for arguments, message in wrong:
        with raises(message):
            step(*arguments)
    with raises("loss_fn: expected y f32[batch,1], got nothing for it"):
        step(x=ones(3, 3))
    assert step.sizes == [{"batch": 4}]
    after = step.state_dict()
    assert all((after[name] == array).all() for name, array in before.items())


def test_what_compile_refuses() -> None:
    spec = graphc.spec(("batch", 3))
    some = graphc.Buckets(1, 2)
    assert repr(graphc.Buckets(8, 2, 2)) == "Buckets(2, 8)"

    def compiled(spec: Any = spec, **options: Any) -> Any:
        return graphc.compile(lambda x: x, spec, device="reference", **options)

    for sizes, got in (((), "nothing"), ((4, 0), "4, 0"), (("a",), "'a'"), ((True,), "True")):
        with raises(f"Buckets: expected positive integers, got {got}", line=True):
            graphc.Buckets(*sizes)
    with raises("sizes: expected names of axes in the specs, got 'time'", line=True):
        compiled(sizes={"time": some})
    with raises("sizes: expected names of axes in the specs, got 'batch'", line=True):
        compiled(graphc.spec((4, 3)), batch=some)
    with raises("sizes: expected 'batch' once, got it here and as batch=", line=True):
        compiled(sizes={"batch": some}, batch=some)
    with raises("sizes: expected a dict from names to Buckets, got Buckets", line=True):
        compiled(sizes=some)
    with raises("batch: expected graphc.Buckets(1, 2, 4), got [1, 2]", line=True):
        compiled(batch=[1, 2])
    with raises("sizes['n']: expected graphc.Buckets(1, 2, 4), got 3", line=True):
        compiled(sizes={"n": 3})
    with raises("argument x: f32[batch,3] has an axis of any size, which compile alone takes: "
                "give its size", line=True):  # fmt: skip
        graphc.trace(lambda x: x, spec)
    with raises("expected a function or a module, got int", line=True):
        graphc.compile(3, spec)
    with raises("spec: a shape holds non-negative integers and names like 'batch', got ('a b',)"):
        graphc.spec(("a b",))


def test_waiting_is_for_the_plans_so_far() -> None:
    need_command("g++", "clang++")
    f = graphc.compile(lambda x: graphc.relu(x) * 3, graphc.spec(("batch",)), device="cpu")
    assert f.ready
    first = f(np.ones(5, np.float32))
    f.wait()
    assert f.ready
    assert f.at(batch=5).ready
    assert np.array_equal(f(np.ones(5, np.float32)), first)
