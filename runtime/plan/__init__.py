"""Plans: steps, the bytes they touch, their text, and unrolled loops."""

import graphc.runtime.plan.text  # noqa: F401 (plans are written by it)
