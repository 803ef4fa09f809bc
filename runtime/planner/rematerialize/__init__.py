"""Less memory for more time: kernels that run again so that their results need not be kept."""
