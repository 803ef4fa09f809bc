"""`python -m tests.networks SEED [LAST] [--devices planned,cpu] [--shrink]`: check and print."""

from __future__ import annotations

import argparse

from tests.networks.draw import draw
from tests.networks.network import Network
from tests.networks.shrink import shrink
from tests.networks.workers import Worker
from tests.networks.write import write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.networks", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--devices", default="planned")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--shrink", action="store_true")
    given = parser.parse_args()
    worker, devices, failed = Worker(), tuple(given.devices.split(",")), 0
    last = given.first if given.last is None else given.last
    for seed in range(given.first, last + 1):
        network = draw(seed)
        outcome = worker.check(network, devices, given.seconds)
        if not outcome.failure:
            continue
        failed += 1
        print(f"{seed}: {outcome.failure}: {outcome.text.strip().splitlines()[-1]}", flush=True)
        if given.shrink:
            network = smallest(worker, network, devices, outcome.failure, given.seconds)
            outcome = worker.check(network, devices, given.seconds)
            print(f"{write(network)}\n{network}\n{outcome.text}", flush=True)
    print(f"{failed} of {last + 1 - given.first} fail")
    worker.close()


def smallest(
    worker: Worker, network: Network, devices: tuple[str, ...], failure: str, seconds: float
) -> Network:
    """The smallest network found that fails in this way."""

    def fails(simpler: Network) -> bool:
        return worker.check(simpler, devices, seconds).failure == failure

    return shrink(network, fails)


if __name__ == "__main__":
    main()
