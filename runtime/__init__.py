"""When and where kernels run: the plan, its streams and memory, the verifier, and the devices."""

assert __name__ == "graphc.runtime", f"import graphc.runtime, not {__name__}"
