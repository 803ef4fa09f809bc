"""Running results along an axis, and sorting."""
