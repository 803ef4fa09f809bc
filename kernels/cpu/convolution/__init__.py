"""Convolutions with channels in the vector lanes, by AMX, and by the algorithm of Winograd."""
