"""Measured times of operators, as CSV files."""
