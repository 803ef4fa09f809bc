"""Checks that GRAPHC_CHECK requests: indices within bounds, and the origin of a NaN."""
