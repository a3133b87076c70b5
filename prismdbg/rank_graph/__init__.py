"""Execution graphs: what a rank did between two moments and what had to happen first. Pure values."""
