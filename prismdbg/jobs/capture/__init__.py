"""A capsule is made of a rank."""
