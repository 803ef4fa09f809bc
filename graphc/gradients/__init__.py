"""Reverse-mode differentiation of graphs and loops, and the vocabulary of gradient rules."""
