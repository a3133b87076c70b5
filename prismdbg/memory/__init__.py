"""A memory trace read as columns: what was live when, who made it, where the peak was, what leaked. Nothing runs."""
