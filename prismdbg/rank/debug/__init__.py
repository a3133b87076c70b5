"""A rank that is debugged: it stops, and what it holds is shown."""
