"""The runtimes by name, in the order in which they are tried."""

from __future__ import annotations

from typing import Final

DOCKER: Final = "docker"  # a container
LOCAL: Final = "local"  # namespaces of this machine
PLAIN: Final = "plain"  # a process as any other
RUNTIMES: Final = (DOCKER, LOCAL, PLAIN)
