"""Passes: graph in, graph out. pipeline.py has their order and the reasons for it."""
