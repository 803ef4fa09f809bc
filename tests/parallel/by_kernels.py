"""What ranks train where kernels add the pieces of gradients, as on GPUs.

`python -m tests.parallel.by_kernels CASE SHARDS [SHARDED]` prints JSON: the digest of the case's
state, and if SHARDED, of one whose moments are divided among the ranks.
"""

from __future__ import annotations

import json
import sys

import graphc
from graphc.program import compiler
from tests.parallel.cases import trained


def main(case: str, shards: str, sharded: str = "") -> None:
    """Print what this rank has trained."""
    compiler.orders_messages = lambda device: False
    found = []
    for divides in (False, True)[: 2 if sharded else 1]:
        parallel = graphc.DataParallel(
            shards=int(shards), shard_optimizer_state=divides, timeout=60
        )
        found.append(trained(case, parallel)["digest"])
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
