"""Run by test_cudnn.py: what cuDNN itself says, of an H200 that is not here, to each convolution of
its tests. Prints for each how many configurations and how many plans there are."""

from __future__ import annotations

import ctypes
import json
import os

from graphc.runtime.cuda.cudnn import Cudnn
from tests.support.cudnn import NODES, convolution

H200 = {
    "deviceName": "NVIDIA H200",
    "cudaDeviceId": 0,
    "deviceVer": 900,
    "driverVer": 13000,
    "multiProcessorCount": 132,
    "smCountOrigin": 0,
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "maxCtasPerSM": 32,
    "warpSize": 32,
    "regsPerBlock": 65536,
    "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448,
    "oversizedSharedMemoryPerBlock": 0,
    "reservedSharedMemoryPerBlock": 1024,
    "totalGlobalMem": 150000000000,
    "l2CacheSize": 62914560,
    "memoryBusWidth": 6144,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 3201000,
    "pciDeviceId": 0,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
}
"""As the library writes a device's properties."""

VERSION = 92801
"""Of the library whose properties these are."""


def main() -> None:
    library = Cudnn(ctypes.CDLL(os.environ["REAL_CUDNN"]), json.dumps(H200))
    if library._library.cudnnGetVersion() < VERSION:
        print("older")
        return
    found = []
    for node in NODES:
        asked = convolution(node)
        prepared = library.prepare(asked)
        configurations = len(list(prepared.configurations()))
        ready = not asked.epilogue and asked.tensors[0].dtype == "f32"
        found.append((configurations, len(prepared.workspaces) if ready else 0))
    for name in ("cudnnCreate", "cudnnSetStream", "cudnnBackendExecute"):
        getattr(library._library, name)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
