"""Loops and branches, whose bodies are traced once: scan, while_loop, fori_loop, cond."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.functions.array.creation import arange
from graphc.functions.array.elementwise.elementwise import logical_not, where
from graphc.functions.array.looping import check_carry, describe, difference, like_carry, run_scan
from graphc.functions.array.tensors import as_tensor, error, is_integer, promoted
from graphc.ir import FLOATS, tree
from graphc.trace import Tensor, current_builder


def scan(
    fn: Callable[..., Any],
    init: Any,
    xs: Any = None,
    reverse: bool = False,
    length: int | None = None,
    recompute: bool = False,
    until: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """Run a loop `carry, y[t] = fn(carry, x[t])` for t = 0, ..., n - 1.

    The body is traced and compiled once, for any n.

    Args:
        fn: A function of the carry and the elements of one iteration that returns (new carry, y).
            The new carry has the structure, shapes and dtypes of the old one; `y` may have any, and
            may be None. The function may read tensors and parameters from outside and call `scan`
            itself.
        init: The first carry: a tensor, or tuples, lists and dicts of tensors.
        xs: Tensors with a first axis of size n, in the same kinds of structure; None for a loop
            without inputs.
        reverse: Whether to run from t = n - 1 down to 0.
        length: n, for a loop without `xs`.
        recompute: Whether to save memory at the cost of time: the gradient computes each iteration
            again from its old carry, the only value that is kept, and no work is moved out of the
            loop.
        until: A function of the new carry that returns a bool []: after the iteration in which it
            is true no other counts. The carry stays as it is then, and the other `y` are zeros.
            The CPU leaves the kernels of these iterations out.

    Returns:
        The last carry, and the `y` of all iterations stacked along a new first axis.

    Raises:
        GraphError: The function does not return a pair, the carry changes its structure or type,
            the sizes of the first axes differ, or `until` does not return a bool [].

    Example:
        >>> def add(total, x):
        ...     return total + x, total * x
        ...
        >>> xs = np.array([1, 2, 3])
        >>> graphc.compile(lambda: graphc.scan(add, 0, xs))()
        (array(6), array([0, 2, 9]))
    """

    def step(carry: Any, element: Any) -> tuple[Any, Any]:
        result = fn(carry, element)
        if not isinstance(result, tuple) or len(result) != 2:
            raise error(f"scan: expected the function to return (carry, y), got {describe(result)}")
        return result

    if until is None:
        return run_scan(lambda c, x: (*step(c, x), None), init, xs, reverse, length, recompute)
    if not callable(until):
        raise error(f"scan: until expected a function of the carry, got {until!r}")
    ends = until

    def unless(carry: Any, element: Any) -> tuple[Any, Any, Tensor]:
        goes_on, own = carry
        new, y = step(own, element)
        return (logical_not(_bool("scan: until", ends(new))), new), y, goes_on

    (_, last), ys = run_scan(unless, (True, init), xs, reverse, length, recompute)
    return last, ys


def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any, limit: int
) -> Any:
    """Run a loop `carry = body_fun(carry)` while `cond_fun(carry)`, at most `limit` times.

    The body is traced and compiled once. The CPU leaves the kernels of iterations behind the end
    out; a GPU computes all `limit` iterations and drops these. Gradients keep the old carries of
    `limit` iterations. In a `vmap` the loop of each sample ends by itself.

    Args:
        cond_fun: A function of the carry that returns a bool [].
        body_fun: A function of the carry that returns the next one, of the same structure, shapes
            and dtypes. Both may read tensors and parameters from outside.
        init: The first carry: a tensor, or tuples, lists and dicts of tensors.
        limit: The most iterations: the loop ends then, even where `cond_fun` still holds.

    Returns:
        The last carry.

    Raises:
        GraphError: The carry changes its structure or type, the condition is no bool [], or
            `limit` is no number of iterations.

    Example:
        >>> def halve(n):
        ...     return graphc.while_loop(lambda x: x > 1.0, lambda x: x / 2, n, limit=100)
        ...
        >>> graphc.compile(halve, graphc.spec(()))(np.float32(12))
        array(0.75, dtype=float32)
    """
    if not is_integer(limit) or limit < 0:
        raise error(f"while_loop: limit expected a number of iterations, got {limit!r}")

    def step(carry: Any, _: Any) -> tuple[Any, None, Tensor]:
        goes_on, own = carry
        new = like_carry(own, tree.map_leaves(lambda _, leaf: as_tensor(leaf), body_fun(own)))
        check_carry("while_loop", own, new)
        return (_bool("while_loop: cond_fun", cond_fun(new)), new), None, goes_on

    first = tree.map_leaves(lambda _, leaf: as_tensor(leaf), init)
    begins = _bool("while_loop: cond_fun", cond_fun(first))
    return run_scan(step, (begins, first), length=int(limit), name="while_loop")[0][1]


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init: Any,
    limit: int | None = None,
) -> Any:
    """Run a loop `carry = body_fun(i, carry)` for i = lower, ..., upper - 1.

    The body is traced and compiled once.

    Args:
        lower: The first i: an integer, or a tensor i64 [] or i32 [].
        upper: The end, exclusive, in the same way.
        body_fun: A function of i, a tensor, and the carry that returns the next carry, of the same
            structure, shapes and dtypes.
        init: The first carry: a tensor, or tuples, lists and dicts of tensors.
        limit: The most iterations, for bounds that are tensors; see `while_loop`.

    Returns:
        The last carry.

    Raises:
        GraphError: The carry changes its structure or type, a bound is no integer, or bounds that
            are tensors have no limit.

    Example:
        >>> power = lambda x: graphc.fori_loop(0, 10, lambda i, y: y * x, 1.0)
        >>> graphc.compile(power, graphc.spec(()))(np.float32(2))
        array(1024., dtype=float32)
    """
    if is_integer(lower) and is_integer(upper):

        def step(carry: Any, i: Tensor) -> tuple[Any, None, None]:
            return body_fun(i, carry), None, None

        numbers = arange(int(lower), max(int(lower), int(upper)))
        return run_scan(step, init, numbers, name="fori_loop")[0]
    if limit is None:
        raise error("fori_loop: bounds that are tensors need limit=, the most iterations")
    begin, end = as_tensor(lower), as_tensor(upper)
    for bound in (begin, end):
        if bound.shape or bound.dtype not in ("i32", "i64"):
            raise error(f"fori_loop: expected bounds i32[] or i64[], got {bound.value.type}")

    def body(carry: Any) -> Any:
        i, own = carry
        return i + 1, body_fun(i, own)

    return while_loop(lambda carry: carry[0] < end, body, (begin, init), limit)[1]


def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """Return `true_fun(*operands)` if `pred`, else `false_fun(*operands)`.

    The CPU computes that branch alone; a GPU computes both and drops one. A gradient is that of the
    branch that is taken: what the other would give, such as NaN, has no part in it. A Python bool
    decides while the function is traced. In a `vmap` each sample takes its own branch, and a branch
    is computed if any sample takes it.

    Args:
        pred: A bool [], or a Python bool.
        true_fun: A function of the operands. Both may read tensors and parameters from outside.
        false_fun: Another, whose results have the same structure, shapes and dtypes.
        *operands: The arguments: tensors, modules, anything.

    Returns:
        The results of the branch: a tensor, or tuples, lists and dicts of tensors.

    Raises:
        GraphError: `pred` is no bool [], or the results of the branches differ in structure, shapes
            or dtypes.

    Example:
        >>> f = lambda x: graphc.cond(x > 0, lambda x: graphc.log(x), lambda x: x - 1, x)
        >>> f = graphc.compile(f, graphc.spec(()))
        >>> f(np.float32(1)), f(np.float32(-1))
        (array(0., dtype=float32), array(-2., dtype=float32))
    """
    if isinstance(pred, bool):
        return (true_fun if pred else false_fun)(*operands)
    chosen = _bool("cond: pred", pred)
    first = _branch(chosen, true_fun, operands)
    second = _branch(logical_not(chosen), false_fun, operands)
    first, second = _joined(first, second)
    if (found := difference(first, second)) is not None:
        place, one, other = found
        raise error(f"cond: true_fun returns {one}{place}, false_fun returns {other}")
    others = iter([leaf for _, leaf in tree.leaves(second)])
    return tree.map_leaves(lambda _, leaf: where(chosen, leaf, next(others)), first)


def _branch(runs: Tensor, fn: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Return what `fn` returns: a loop of one iteration, or of none where `runs` is false."""
    _, found = run_scan(lambda *_: ((), fn(*operands), runs), (), length=1, name="cond")
    return tree.map_leaves(lambda _, stack: stack[0], found)


def _joined(first: Any, second: Any) -> tuple[Any, Any]:
    """The results of branches; with mixed precision floats of two dtypes have the wider one."""
    if not current_builder().mixed or tree.structure(first) != tree.structure(second):
        return first, second
    others = [leaf for _, leaf in tree.leaves(second)]
    pairs = list(zip((leaf for _, leaf in tree.leaves(first)), others, strict=True))
    both = [promoted(*p) if {t.dtype for t in p} <= {*FLOATS} else p for p in pairs]
    one, other = iter([pair[0] for pair in both]), iter([pair[1] for pair in both])
    taken = tree.map_leaves(lambda _, __: next(one), first)
    return taken, tree.map_leaves(lambda _, __: next(other), second)


def _bool(name: str, found: Any) -> Tensor:
    tensor = as_tensor(found)
    if tensor.shape or tensor.dtype != "bool":
        raise error(f"{name} expected a bool[], got {tensor.value.type}")
    return tensor
