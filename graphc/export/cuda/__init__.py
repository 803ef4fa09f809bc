"""Programs of a GPU as CUDA and C++ sources: kernels for several architectures, and a player."""
