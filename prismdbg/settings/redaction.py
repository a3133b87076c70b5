"""Environment variables that tell a replayed rank what its capsule does not hold."""

from __future__ import annotations

REDACTED_NAMES = "PRISMDBG_REDACTED"  # for `sitecustomize`, separated by commas
REDACTED_FILES = "PRISMDBG_REDACTED_FILES"  # likewise, a JSON list
