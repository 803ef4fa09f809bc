"""Tools for passes: names, measures that fall, reasons, the runner."""
