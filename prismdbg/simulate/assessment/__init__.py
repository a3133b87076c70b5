"""What a simulation is worth: what it rests on, and how far it is off where it was measured."""
