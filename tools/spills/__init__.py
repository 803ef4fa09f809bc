"""Compile every kernel of the benchmarks' workloads for GPUs and list those that spill.

A kernel spills where its values do not fit the registers of a thread: some are then in local
memory, and each use of them costs an access.
"""
