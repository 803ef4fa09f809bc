"""Products inside loops, whose blocks keep a weight in registers or own rows of the state."""
