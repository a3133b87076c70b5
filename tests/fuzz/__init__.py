"""Hostile and damaged input, made from whole capsules: `python -m tests.fuzz`, `make fuzz N=`."""
