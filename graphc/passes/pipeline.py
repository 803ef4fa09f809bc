"""The passes in the order in which they run, with the reason for each position.

Before differentiation (`BEFORE_GRADIENT`):
store_or_recompute  right behind a gradient that the function itself takes, while backward scans
                    still repeat the forward ones node by node
simplify            fewer nodes to differentiate
commute             so that the backward pass sees the cheaper order
hoist               so that what is hoisted has an ordinary gradient

After it (`AFTER_GRADIENT`; passes of a precision from `PRECISIONS` stand before the one they name):
store_or_recompute  right behind differentiation, as above
narrow_products     with precision="bfloat16", before clean and hoist: what several read, or every
                    iteration, is rounded once
clean               fewer nodes for everything that follows
hoist               where the sums of weight gradients leave their loops; then clean again
recompute           behind the last clean, which would join again what it repeats
split_strides       before fusion, which gathers what belongs to each part
split_joins         likewise, and behind what makes concats
place_constants     before fusion, which treats large constants as memory
narrow_hoisted      with precision="bfloat16", the same once more for what hoisting stacked as f32,
                    and in loops, where weights that blocks hold are rounded as they are read:
                    behind all that might move it
round_products      with precision="tf32", right before widen, as the rounding of a read must not
                    be hoisted away from its contraction
widen               before fusion, which lets conversions vanish into their readers
select_iterations   last before fusion: it makes kernels that no other node may join
fuse_contract       first of the fusions: an epilogue saves most, a pointwise op has one home
fuse_attend         likewise: the concat is of no use to others
fuse_axis           before what it absorbs finds a home elsewhere
fuse_pointwise      what is left; every node is a kernel afterwards
fuse_updates        after fusion, when an update rule is one kernel per parameter
layout              late: it needs to know the kernels, and decides once for each
lane_weights        behind layout: it looks at kernels that have the batch in the lanes, or not
channel_lanes       it looks at kernels that the batch's lanes left row-major
channels_last       likewise, for devices whose kernels copy several elements at once
fuse_columns        behind layouts, which look at kernels of one contraction or of reductions alone
fuse_rows           likewise
fuse_products       small contractions become grouped products; it looks at kernels that are
                    finished, and changes none of them
order_turns         behind all that adds nodes
fuse_multiply_add   last: which products are rounded is what kernels compute, whatever made them
"""

from graphc.ops.loops.bodies import through_bodies
from graphc.passes.fuse.attend import fuse_attend
from graphc.passes.fuse.axis import fuse_axis
from graphc.passes.fuse.columns import fuse_columns
from graphc.passes.fuse.contract import fuse_contract
from graphc.passes.fuse.fuse_multiply_add import fuse_multiply_add
from graphc.passes.fuse.grouped_gemm import fuse_products
from graphc.passes.fuse.place_constants import place_constants
from graphc.passes.fuse.pointwise import fuse_pointwise
from graphc.passes.fuse.precision import (
    narrow_large,
    narrow_looped,
    narrow_products,
    round_products,
)
from graphc.passes.fuse.rows import fuse_rows
from graphc.passes.fuse.select_iterations import select_iterations
from graphc.passes.fuse.updates import fuse_updates
from graphc.passes.fuse.widen import widen
from graphc.passes.layout.channels import channel_lanes
from graphc.passes.layout.channels_last import channels_last
from graphc.passes.layout.lane_weights import lane_weights
from graphc.passes.layout.layout import layout
from graphc.passes.layout.split_joins import split_joins
from graphc.passes.layout.split_strides import split_strides
from graphc.passes.loops.hoist import hoist
from graphc.passes.loops.store_or_recompute import store_or_recompute
from graphc.passes.order_turns import order_turns
from graphc.passes.rewriting.runner import Pass
from graphc.passes.simplify.clean import clean, simplify
from graphc.passes.simplify.commute import commute
from graphc.passes.simplify.recompute import recompute

BEFORE_GRADIENT: tuple[tuple[str, Pass], ...] = (
    ("store_or_recompute_traced", store_or_recompute),
    ("simplify", through_bodies(simplify)),
    ("commute", through_bodies(commute)),
    ("hoist", hoist),
)
AFTER_GRADIENT: tuple[tuple[str, Pass], ...] = (
    ("store_or_recompute", store_or_recompute),
    ("clean", through_bodies(clean)),
    ("hoist_gradient", hoist),
    ("clean_hoisted", through_bodies(clean)),
    ("recompute", recompute),
    ("split_strides", through_bodies(split_strides)),
    ("split_joins", through_bodies(split_joins)),
    ("place_constants", through_bodies(place_constants)),
    ("widen", through_bodies(widen)),
    ("select_iterations", select_iterations),
    ("fuse_contract", through_bodies(fuse_contract)),
    ("fuse_attend", through_bodies(fuse_attend)),
    ("fuse_axis", through_bodies(fuse_axis)),
    ("fuse_pointwise", through_bodies(fuse_pointwise)),
    ("fuse_updates", fuse_updates),
    ("layout", layout),
    ("lane_weights", lane_weights),
    ("channel_lanes", channel_lanes),
    ("channels_last", channels_last),
    ("fuse_columns", fuse_columns),
    ("fuse_rows", fuse_rows),
    ("fuse_products", fuse_products),
    ("order_turns", order_turns),
    ("fuse_multiply_add", through_bodies(fuse_multiply_add)),
)
PRECISIONS: dict[str, tuple[tuple[str, Pass, str], ...]] = {
    "float32": (),
    "float32x3": (),
    "winograd": (),
    "tf32": (("round_products", through_bodies(round_products), "widen"),),
    "bfloat16": (
        ("narrow_products", through_bodies(narrow_products, narrow_large), "clean"),
        ("narrow_hoisted", through_bodies(narrow_products, narrow_looped), "widen"),
    ),
}
"""For each precision of products the passes that make it so, and before which others they stand."""
OPTIONAL = (
    "store_or_recompute_traced",
    "store_or_recompute",
    "simplify",
    "commute",
    "hoist",
    "clean",
    "hoist_gradient",
    "clean_hoisted",
    "recompute",
    "split_strides",
    "split_joins",
    "fuse_updates",
    "layout",
    "lane_weights",
    "channel_lanes",
    "channels_last",
    "fuse_columns",
    "fuse_rows",
    "fuse_products",
    "by_step",
    "join_launches",
)
"""Passes that `disable` may switch off; the others make the graph executable. The last two are the
planner's (`runtime/planner/time_steps.py`, `join_launches.py`)."""


NOT_IN_LOOPS = ("recompute", "layout", "channel_lanes")
"""Passes that leave bodies of loops as they are. Programs whose micro-batches are written out do
without them, to have the bits of those that loop over micro-batches."""


def after_gradient(precision: str) -> tuple[tuple[str, Pass], ...]:
    """`AFTER_GRADIENT` with the pass of a precision."""
    own = PRECISIONS[precision]
    placed: list[tuple[str, Pass]] = []
    for name, function in AFTER_GRADIENT:
        placed += [(mine, makes) for mine, makes, before in own if before == name]
        placed.append((name, function))
    return tuple(placed)


__all__ = [
    "AFTER_GRADIENT",
    "BEFORE_GRADIENT",
    "NOT_IN_LOOPS",
    "OPTIONAL",
    "PRECISIONS",
    "after_gradient",
]
