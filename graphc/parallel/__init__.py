"""Ranks that train one model together: how they find each other, and what they exchange."""
