"""Attention and its gradients, with and without tensor cores."""
