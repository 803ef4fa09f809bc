"""Gradients of gathers, and scatters."""
