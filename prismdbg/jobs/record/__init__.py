"""A job that is recorded, and its supervisor."""
