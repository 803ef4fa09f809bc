"""Checks that GRAPHC_CHECK asks for: indices within their ranges, and the origin of a NaN."""
