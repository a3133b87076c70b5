"""All ranks of a recorded job on one screen."""
