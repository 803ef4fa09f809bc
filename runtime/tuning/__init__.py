"""Choices by measurement: the number of streams, and the kernel of a node."""
