"""The job graph of a model that is trained on a mesh."""
