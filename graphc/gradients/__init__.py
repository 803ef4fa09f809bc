"""Reverse mode over graphs and loops, and the vocabulary that rules are handed."""
