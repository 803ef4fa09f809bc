"""Shapes, orders of axes, padding."""
