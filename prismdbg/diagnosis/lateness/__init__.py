"""Which ranks came late, when others waited for them, and why, by the sensors that were read beside the job."""
