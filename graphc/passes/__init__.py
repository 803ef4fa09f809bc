"""Passes, from graph to graph; pipeline.py has their order and the reasons for it."""
