"""Operators, allocations and frees of the rank, between its collectives."""
