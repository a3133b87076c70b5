"""The execution graph of all ranks, by classes of ranks that do the same."""
