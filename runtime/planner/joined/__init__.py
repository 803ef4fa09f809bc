"""Join a plan's steps into cooperative launches."""
