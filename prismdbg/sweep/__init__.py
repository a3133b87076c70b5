"""Configurations of one job tried one after another, and compared."""
