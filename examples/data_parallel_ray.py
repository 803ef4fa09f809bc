"""Train on handwritten digits as the workers of Ray Train, here on a cluster on this machine.

    python examples/data_parallel_ray.py --workers 2

needs `pip install 'graphc[ray,demo]'`. Rank 0 says where it listens, and each worker joins the
others over TCP; all else is `data_parallel.py`, whose bits these are.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import ray
from ray import train
from ray.train.collective import broadcast_from_rank_zero
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from graphc.parallel import mesh

FOLDER = Path(__file__).resolve().parent


def worker(options: dict) -> None:
    """What each worker does."""
    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    sys.path.insert(0, str(FOLDER))
    from data_parallel import run

    host = ray.util.get_node_ip_address()
    address, key = broadcast_from_rank_zero((mesh.free_address(host), mesh.fresh_key()))
    found = {"ADDRESS": address, "RANK": rank, "RANKS": ranks, "KEY": key, "NUM_THREADS": 1}
    os.environ.update({f"GRAPHC_{name}": str(value) for name, value in found.items()})
    with tempfile.TemporaryDirectory() as folder:
        accuracy = run(options["epochs"], Path(folder))
        kept = train.Checkpoint.from_directory(folder) if rank == 0 else None
        train.report({"accuracy": accuracy}, checkpoint=kept)


def main(arguments: list[str] | None = None) -> float:
    """The accuracy on the test digits, in per cent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args(arguments)
    paths = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])
    environment = {"env_vars": {"PYTHONPATH": paths}}
    ray.init(num_cpus=options.workers, include_dashboard=False, runtime_env=environment)
    with tempfile.TemporaryDirectory() as folder:
        trainer = DataParallelTrainer(
            worker,
            train_loop_config={"epochs": options.epochs},
            scaling_config=train.ScalingConfig(num_workers=options.workers),
            run_config=train.RunConfig(storage_path=folder),
        )
        accuracy = trainer.fit().metrics["accuracy"]
    ray.shutdown()
    print(f"{options.workers} workers of Ray, test accuracy {accuracy:.1f} %")
    return accuracy


if __name__ == "__main__":
    main()
