"""How good the tests are: one place of the sources changed at a time (docs/testing.md)."""
