"""Places a captured rank can run again: a Docker container, namespaces of this machine, or a plain process."""
