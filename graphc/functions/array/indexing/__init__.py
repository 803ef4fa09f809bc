"""Gathering, scattering and subscripts."""
