"""Reductions: how rows are divided, stages, statistics in one pass."""
