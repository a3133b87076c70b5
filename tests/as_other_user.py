"""Run by a test as a user who is not root: starts the counting rank in namespaces and prints what it says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from counting import ask, program_spec

from prismdbg.runtime.local_runtime import LocalRuntime


def main(session: Path) -> int:
    runtime = LocalRuntime()
    spec, socket = program_spec(session)
    written = session.parent / "written"
    if reason := runtime.available():
        print(json.dumps({"unavailable": reason}))
        return 0
    rank = runtime.start(spec)
    try:
        said = ask(socket, f"write {written}")
    finally:
        rank.kill()
    print(json.dumps({**said, "caller": os.geteuid(), "is_written": written.exists()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
