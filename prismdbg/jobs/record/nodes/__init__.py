"""A job of several supervisors: who takes part, what each node tells the others, and where its logs are."""
