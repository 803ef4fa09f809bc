"""Trade time for memory: rerun kernels so that their results need not be kept."""
