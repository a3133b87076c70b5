"""What runs inside the measured processes."""
