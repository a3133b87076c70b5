"""What the kernel that the tests run on can do."""

from __future__ import annotations

import os

VERSION = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2]))
PIDFDS_TELL = VERSION >= (6, 15)  # how a process ended, also after its parent has waited for it
