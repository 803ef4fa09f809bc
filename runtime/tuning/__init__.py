"""Choices by measurement: the number of streams, and which kernel computes a node."""
