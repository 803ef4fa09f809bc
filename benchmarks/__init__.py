"""Training steps and forward passes, timed, beside other frameworks on the same machine."""
