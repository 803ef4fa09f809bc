"""Every op on its samples: what the tests of the ops and of every backend walk.

Adding an op means adding a line to the file of its family. The shapes include extents of 1, those
about a vector's, broadcasting, empty values and up to five axes.
"""

from __future__ import annotations

from tests.ops.sample import Sample as Sample
from tests.ops.samples_attention import ATTENTIONS
from tests.ops.samples_axes import REDUCTIONS, SOURCES, VIEWS
from tests.ops.samples_linear import MATRICES
from tests.ops.samples_logic import LOGIC
from tests.ops.samples_order import ORDERS
from tests.ops.samples_places import PLACES
from tests.ops.samples_pointwise import POINTWISE
from tests.ops.samples_products import CONTRACTIONS, WINDOWS

SAMPLES: tuple[Sample, ...] = (
    *POINTWISE,
    *LOGIC,
    *SOURCES,
    *REDUCTIONS,
    *VIEWS,
    *CONTRACTIONS,
    *WINDOWS,
    *PLACES,
    *ORDERS,
    *ATTENTIONS,
    *MATRICES,
)


def _spread(samples: tuple[Sample, ...], most: int) -> tuple[Sample, ...]:
    """At most so many samples of each op, far apart in the list of them."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        families.setdefault(sample.op.name, []).append(sample)
    return tuple(s for each in families.values() for s in each[:: -(-len(each) // most)])


CORE = _spread(SAMPLES, 5)
"""Some samples of each op, for tests in which a sample takes long."""
MANY = _spread(SAMPLES, 16)
"""More of them."""
