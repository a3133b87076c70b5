"""The working directory and the environment that the program was started with. Imported before its first line: it may
change both."""

from __future__ import annotations

import os

from prismdbg.rank.program import process_runs


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        try:
            return os.readlink("/proc/self/cwd").removesuffix(" (deleted)")
        except OSError:  # and /proc is not there
            return "/"


folder = _folder()
_variables = dict(os.environ)
_pid = os.getpid()


def environment() -> dict[str, str]:
    """Of a process that came about by `os.fork`, which no replay starts, the present one."""
    return dict(_variables if os.getpid() == _pid or process_runs.forked() else os.environ)
