"""Where the configurations of a sweep run: this machine, or a cluster."""
