"""Train on handwritten digits as tasks of Dask, here on a cluster on this machine.

    python examples/data_parallel_dask.py --workers 2

needs `pip install 'graphc[dask,demo]'`. Each worker runs one task, all at once; rank 0's listens at
an address that is chosen on its machine, and the others join it over TCP. All else is
`data_parallel.py`, whose bits these are.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from distributed import Client, LocalCluster, get_worker

from graphc.parallel import mesh

FOLDER = Path(__file__).resolve().parent


def address_here() -> str:
    """Where rank 0 may listen, on the worker that this runs on."""
    return mesh.free_address(get_worker().address.split("//")[1].rpartition(":")[0])


def rank(number: int, ranks: int, address: str, key: str, epochs: int) -> str:
    """What one rank prints, in a process of its own, so that a worker may train again."""
    found = {"ADDRESS": address, "RANK": number, "RANKS": ranks, "KEY": key, "NUM_THREADS": 1}
    names = {f"GRAPHC_{name}": str(value) for name, value in found.items()}
    paths = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(FOLDER / "data_parallel.py"), "--epochs", str(epochs)]
    environment = {**os.environ, "PYTHONPATH": paths, **names}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"rank {number}: {ended.stderr}")
    return ended.stdout


def main(arguments: list[str] | None = None) -> float:
    """The accuracy on the test digits, in per cent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args(arguments)
    cluster = LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        address = client.submit(address_here, workers=workers[0]).result()
        key = mesh.fresh_key()
        tasks = [
            client.submit(rank, n, len(workers), address, key, options.epochs, workers=worker)
            for n, worker in enumerate(workers)
        ]
        outputs = client.gather(tasks)
    print(outputs[0], end="")
    accuracy = float(outputs[0].split()[-2])
    print(f"{options.workers} workers of Dask, test accuracy {accuracy:.1f} %")
    return accuracy


if __name__ == "__main__":
    main()
