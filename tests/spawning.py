"""The type of the `spawn` fixture: starts a process that ends with its test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Spawn = Callable[..., "subprocess.Popen[str]"]
