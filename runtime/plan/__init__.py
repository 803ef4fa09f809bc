"""Plans: steps, the bytes they touch, text, loops written out."""

import graphc.runtime.plan.text  # noqa: F401 (plans are written by it)
