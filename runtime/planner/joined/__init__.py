"""Join steps of a plan into cooperative launches."""
