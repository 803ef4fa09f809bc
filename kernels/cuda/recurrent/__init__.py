"""Products inside loops whose blocks keep weights in registers, or own rows of the state."""
