"""Steps on sequences [n, t, f], which convolution and pooling take as [n, c, l]."""

from __future__ import annotations

from tests.networks.network import SYMBOLS, Choices, Line, Shape, divisors, kind, need

WIDTHS = (4, 3, 1, 8, 5, 12, 16, 17)


@kind(3, weight=5)
def dense(choose: Choices, x: Shape) -> Line:
    return Line("{layer}({0})", f"nn.Linear({x[2]}, {choose.of(WIDTHS)}, {not choose.flag()})")


@kind(3, weight=4)
def conv1d(choose: Choices, x: Shape) -> Line:
    k, size, padding = choose.of(WIDTHS), choose.of((3, 1, 2)), choose.of((1, 0))
    stride = choose.of((1, 1, 2))
    groups = choose.of([g for g in divisors(x[1]) if k % g == 0])
    need(x[2] + 2 * padding >= size)
    text = f"{x[1]}, {k}, {size}, {stride}, {padding}, groups={groups}"
    return Line("{layer}({0})", f"nn.Conv1d({text})")


@kind(3, weight=2)
def norm_of_rows(choose: Choices, x: Shape) -> Line:
    need(x[2] > 3)
    return Line("{layer}({0})", f"nn.LayerNorm({x[2]})")


@kind(3, weight=1)
def norm_of_series(choose: Choices, x: Shape) -> Line:
    need(x[0] * x[2] > 3)
    return Line("{layer}({0})", f"nn.BatchNorm1d({x[1]})")


@kind(3, weight=6)
def recurrent(choose: Choices, x: Shape) -> Line:
    need(x[1] <= 20)
    which, hidden = choose.of(("GRU", "LSTM", "RNN")), choose.of((4, 3, 8, 1, 5, 16))
    layers, both = choose.of((1, 1, 1, 2)), choose.of((False, False, False, True))
    text = f"{x[2]}, {hidden}, {layers}, batch_first=True, bidirectional={both}"
    return Line("{layer}({0})[0]", f"nn.{which}({text})")


@kind(3, weight=2)
def last_state(choose: Choices, x: Shape) -> Line:
    need(x[1] <= 20)
    which, hidden = choose.of(("GRU", "RNN")), choose.of((4, 3, 8, 1, 5, 16))
    return Line("{layer}({0})[1][0]", f"nn.{which}({x[2]}, {hidden}, batch_first=True)")


@kind(3, weight=3)
def own_cell(choose: Choices, x: Shape) -> Line:
    need(x[1] <= 20)
    which = choose.of(("MinimalGRU", "Leaky", "Peephole"))
    reverse = choose.of((False, False, True))
    return Line("{layer}({0})", f"nn.{which}({x[2]}, {choose.of((4, 3, 8, 1, 5))}, {reverse})")


@kind(3, weight=3)
def attention(choose: Choices, x: Shape) -> Line:
    need(x[1] <= 24 and x[2] > 1)
    heads = choose.of([d for d in divisors(x[2]) if d <= 4])
    return Line(
        "{layer}({0}, {0}, {0}, need_weights=False)[0]",
        f"nn.MultiheadAttention({x[2]}, {heads}, batch_first=True)",
    )


@kind(3, weight=1)
def transformer(choose: Choices, x: Shape) -> Line:
    need(x[1] <= 16 and 3 < x[2] <= 16)
    heads = choose.of([d for d in divisors(x[2]) if d <= 4])
    text = f"{x[2]}, {heads}, 7, 0.0, {choose.of(('relu', 'gelu'))!r}, batch_first=True"
    return Line("{layer}({0})", f"nn.TransformerEncoderLayer({text}, norm_first={choose.flag()})")


@kind(3, weight=2)
def pool1d(choose: Choices, x: Shape) -> Line:
    size, stride = choose.of(((2, 2), (3, 1), (3, 2)))
    need(x[2] >= size)
    return Line(f"lib.{choose.of(('max', 'avg'))}_pool1d({{0}}, {size}, {stride})")


@kind(3)
def cut_time(choose: Choices, x: Shape) -> Line:
    need(x[1] > 1)
    return Line(f"{{0}}[:, {choose.of(('1:', ':-1', '::2', ':1', '1::2'))}]")


@kind(3)
def cut_features(choose: Choices, x: Shape) -> Line:
    need(x[2] > 1)
    return Line(f"{{0}}[..., {choose.of(('1:', ':-1', '::2', f':{x[2] // 2}'))}]")


@kind(3)
def moved(choose: Choices, x: Shape) -> Line:
    return Line(
        choose.of(("lib.swapaxes({0}, 1, 2)", "lib.flip({0}, (1,))", "lib.roll({0}, 1, 1)"))
    )


@kind(3, weight=1)
def running(choose: Choices, x: Shape) -> Line:
    return Line(f"lib.cumsum({{0}}, {choose.of((1, 2))}) * {round(1 / max(x[1:]), 3)}")


@kind(3, weight=5)
def to_vector_of_times(choose: Choices, x: Shape) -> Line:
    return Line(choose.of(("{0}[:, -1]", "{0}.mean(1)", "lib.flatten({0}, 1)", "{0}.sum(2)",
                           "{0}[:, 0]", "lib.logsumexp({0}, 1)")))  # fmt: skip


@kind(3)
def to_image_of_one(choose: Choices, x: Shape) -> Line:
    need(max(x[1:]) <= 17)
    return Line("{0}[:, None]")


@kind(3)
def to_image_of_parts(choose: Choices, x: Shape) -> Line:
    w = choose.of([d for d in divisors(x[2]) if d <= 8])
    return Line(f"{{0}}.reshape({x[0]}, {x[1]}, {x[2] // w}, {w})")


def embedding(choose: Choices) -> Line:
    """Of an input of symbols: a step of every network that has one."""
    return Line("{layer}({0})", f"nn.Embedding({SYMBOLS}, {choose.of(WIDTHS)})")
