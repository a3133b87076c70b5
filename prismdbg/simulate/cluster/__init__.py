"""The machines: link tiers, how long a transfer takes, and the files that say so."""
