"""What a kernel computes, apart from any device: the walk from outputs to inputs, statements,
accesses, windows, sections, pieces."""
