"""What is done with a job and its ranks: recorded, captured, replayed, stored."""
