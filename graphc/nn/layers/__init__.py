"""Layers, by the names and arguments of torch.nn."""
