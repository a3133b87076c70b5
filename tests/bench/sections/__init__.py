"""One question a file; each gives rows of the table."""
