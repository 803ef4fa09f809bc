"""Shapes, orders of axes, joining, splitting and padding."""
