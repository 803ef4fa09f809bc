"""The loop language: kernels as values, their rewrites, their check and their interpreter."""
