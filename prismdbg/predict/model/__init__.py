"""A model and how it is trained, and what each rank of it does and holds."""
