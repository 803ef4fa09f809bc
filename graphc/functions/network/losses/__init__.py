"""Losses, by the names of torch.nn.functional."""
