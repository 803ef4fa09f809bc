"""When and where kernels run: the plan, its streams and memory, the verifier, and the devices."""

import graphc.runtime.proof  # noqa: F401 (plans prove themselves by it)

assert __name__ == "graphc.runtime", f"import graphc.runtime, not {__name__}"
