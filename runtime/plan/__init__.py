"""What a plan is: its steps, the bytes they touch, its text, its loops written out."""

import graphc.runtime.plan.text  # noqa: F401 (plans are written by it)
