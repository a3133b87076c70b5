"""Faults injected into recorded jobs: what these print and how they end is as in bare runs."""
