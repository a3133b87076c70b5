"""Values shared by every layer: moments, collectives, groups. No torch, no input or output."""
