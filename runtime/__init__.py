"""When and where kernels run: the plan, its streams and memory, the verifier, and the devices."""

if __name__ == "graphc.runtime":
    import graphc.runtime.proof  # noqa: F401 (plans prove themselves by it)
else:  # found in a checkout by who looks for another package's `runtime`
    __path__ = []
