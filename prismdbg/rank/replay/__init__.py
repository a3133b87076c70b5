"""A rank that is replayed among virtual peers."""
