"""Run by a test in a network namespace of its own: captures a process that is bound to an address of this network,
and restores it where that address is given and where it is not. Prints one JSON line. `in_own_network.py ADDRESS`.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from typing import Any

from counting import ask, capture, counting, image_spec, short_folder

from prismdbg.checkpoint import bundle
from prismdbg.errors import CheckpointError
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.starter_spec import starter_file


def main(address: str) -> dict[str, Any]:
    _place().bring_up_loopback([address])
    with short_folder() as home, short_folder() as capsule, counting(home, address) as one:
        taken = capture(bundle.find(), one, capsule)
        with short_folder() as session:
            spec, socket = image_spec(taken, session)
            rank = LocalRuntime().start(spec)
            try:
                count = ask(socket, "status")["count"]
            finally:
                rank.kill()
        with short_folder() as session:
            spec, _ = image_spec(taken, session)
            try:
                LocalRuntime().start(replace(spec, addresses=())).kill()
                refusal = ""
            except CheckpointError as error:
                refusal = f"{error} | {error.hint}"
        return {"addresses": taken.image.addresses, "count": count, "refusal": refusal}


def _place() -> Any:
    """The starter's part of that name."""
    sys.path.append(str(starter_file().parent))
    return importlib.import_module("place")


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
