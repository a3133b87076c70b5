"""What a training step would take, from times of single operators that were measured: no rank runs."""
