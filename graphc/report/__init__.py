"""The report: one HTML file, readable offline, with all that is known of a program."""
