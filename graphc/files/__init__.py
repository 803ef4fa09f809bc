"""Formats of files: safetensors, sealed by a digest, and the JSON in them, read strictly."""
