"""What lies on disk: a run's logs and a capsule's parts. Standard library only; nothing is ever unpickled."""
