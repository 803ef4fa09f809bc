"""Attention and its gradients, by tensor cores and without."""
