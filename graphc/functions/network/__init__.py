"""Neural-network functions, by the names of torch.nn.functional with `axis` for `dim`."""
