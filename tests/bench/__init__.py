"""Measures what prismdbg costs, on real jobs: `python -m tests.bench`. Not a test: nothing here passes or fails."""
