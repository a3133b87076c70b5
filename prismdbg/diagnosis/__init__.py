"""What went wrong, from the logs of all ranks alone. Pure: logs and a clock in, typed verdicts out."""
