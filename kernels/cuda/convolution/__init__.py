"""Convolutions whose blocks hold the pixels that they read, and their gradients."""
