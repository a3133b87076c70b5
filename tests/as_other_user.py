"""Run by a test as a user who is not root: starts the counting rank in namespaces and prints what it says."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from counting import ask, program_spec

from prismdbg.runtime.local_runtime import LocalRuntime


def main(session: Path, script: Path) -> int:
    runtime = LocalRuntime()
    spec, socket = program_spec(session, script)
    written = session.parent / "written"
    spec = replace(spec, folders=(*spec.folders, str(session.parent)))
    if reason := runtime.available():
        print(json.dumps({"unavailable": reason}))
        return 0
    rank = runtime.start(spec)
    try:
        said = ask(socket, f"write {written}")
        if script.name == "hostile_rank.py":
            said["confinement"] = ask(socket, "confinement")
    finally:
        rank.kill()
    print(json.dumps({**said, "caller": os.geteuid(), "is_written": written.exists()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
