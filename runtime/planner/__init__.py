"""Turn a graph of kernels into a plan: tasks, order, streams, memory, loops."""
