"""Soak and fault checks of the whole project; see `__main__.py`."""
