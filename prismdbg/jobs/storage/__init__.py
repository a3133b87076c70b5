"""Runs and capsules on disk: read, packed, sealed, listed, removed."""
