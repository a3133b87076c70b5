"""The command: `python -m tests.bench.tui [COLLECTIVES]`: opens the screen over a large capsule, says what it costs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.bench.machine import Circumstances
from tests.bench.sections import screen
from tests.bench.settings import FULL, QUICK
from tests.bench.table import render


def main() -> int:
    before = Circumstances.now()
    with tempfile.TemporaryDirectory(prefix="prismdbg-bench-") as folder:
        measured = screen.measure(QUICK if "--quick" in sys.argv else FULL, Path(folder))
    print(render(screen.TITLE, measured, before.say()))
    return int(any(row.met is False for row in measured.rows))


sys.exit(main())
