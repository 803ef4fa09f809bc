"""Pack buffers into an arena."""
