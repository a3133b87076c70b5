"""What host and rank share: what a rank is told when it starts. Values, and how they are written and read."""
