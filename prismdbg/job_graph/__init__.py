"""The execution graph of a job, from the logs of its ranks."""
