"""Reductions: rows in the lanes, sums over all rows."""
