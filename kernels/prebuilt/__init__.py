"""Prebuilt kernels of the CPU: functions that read at run time what generated kernels are printed
for, so that a program runs before its own kernels are compiled."""
