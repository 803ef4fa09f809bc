"""Shared by all CUDA templates: kernel sources, vector runs, block partitions, PTX, memory."""
