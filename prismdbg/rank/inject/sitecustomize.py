# mypy: disable-error-code="no-untyped-def, no-untyped-call"
"""First on a recorded job's PYTHONPATH: begins `prismdbg.rank.startup`, which runs the sitecustomize that it hides.

Each Python that a job starts reads this, also an old one that a tool of the system needs. There it runs the hidden
one alone: no line here may need more than Python 2.7. Whatever fails, the program goes on.
"""

import os
import sys

TOLD = ("PRISMDBG_CONFIG", "PRISMDBG_REDACTED", "PRISMDBG_REDACTED_FILES", "PRISMDBG_SPAWNED", "PRISMDBG_FORKED")


def _begin():
    """Whether prismdbg can run here, and runs the shadowed one."""
    if sys.version_info < (3, 11) or not any(os.environ.get(name) for name in TOLD):
        return False
    try:
        from prismdbg.rank import startup
    except Exception as error:  # RUN is gone
        _say("prismdbg: not active: %r\n" % (error,))
        return False
    startup.begin(__file__)
    return True


def _say(line):
    """Where stderr cannot be written to, an exception from here ends Python before the program's first line."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(line)
    except Exception:
        pass


def _run_shadowed():
    """As Python itself would without this folder."""
    here, mine = os.path.dirname(__file__), sys.modules.pop(__name__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault(__name__, mine)


if not _begin():
    _run_shadowed()
