"""Which operators a model has, and how much work each of them is."""
