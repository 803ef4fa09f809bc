"""Contractions: operand accesses, schedules, split-k reductions, epilogues, grouped products."""
