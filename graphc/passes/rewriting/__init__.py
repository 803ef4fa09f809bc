"""Tools for passes: termination measures, names, reasons, the runner."""
