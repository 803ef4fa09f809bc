"""Passes that choose layouts."""
