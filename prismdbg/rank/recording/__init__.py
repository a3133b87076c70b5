"""A rank that is recorded."""
