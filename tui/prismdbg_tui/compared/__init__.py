"""The configurations of a sweep on one screen."""
