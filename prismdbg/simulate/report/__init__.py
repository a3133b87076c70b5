"""What a simulation found, for people, and what it is worth."""
