"""Convolutions, and their gradients, whose blocks stage the pixels they read in shared memory."""
