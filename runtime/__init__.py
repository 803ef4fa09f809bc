"""Plans and the devices that run them: streams, memory, the verifier, CPU, CUDA, the simulator."""

if __name__ == "graphc.runtime":
    import graphc.runtime.proof  # noqa: F401 (plans prove themselves by it)
else:  # found in a checkout by who looks for another package's `runtime`
    __path__ = []
