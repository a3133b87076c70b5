"""Everything that runs inside a training process. Standard library and torch only."""
