"""Chosen ranks of a large job run alone on this machine."""
