"""Compiles every kernel of the benchmarks' workloads for GPUs and lists those that spill.

A kernel spills where its values do not fit the registers of a thread: some then lie in memory of
their own, and each use of them is an access more.
"""
