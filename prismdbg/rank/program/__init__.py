"""The program as it is seen from inside its own process: frames, tensors, and what is ours and not its."""
