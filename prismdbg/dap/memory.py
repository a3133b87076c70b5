"""`readMemory`: the bytes of a tensor's elements, in order."""

from __future__ import annotations

from typing import Any

from prismdbg.dap.arguments import Arguments
from prismdbg.dap.looking import Looking
from prismdbg.debugger.debugger import Debugger
from prismdbg.errors import UsageError, quoted

MOST_BYTES = 1 << 20

Json = dict[str, Any]


class ReadMemory:
    def __init__(self, debugger: Debugger, looking: Looking) -> None:
        self._debugger, self._looking = debugger, looking

    def read(self, arguments: Arguments) -> Json:
        reference = arguments.text("memoryReference")
        if not (reference.isascii() and reference.isdigit() and len(reference) < 10):
            raise UsageError(
                f"{quoted(reference)} is not a memory reference", hint="use the one of a tensor's variable"
            )
        held = self._looking.variables.memory.get(int(reference))
        offset, count = arguments.number("offset", 0, least=-(2**53)), arguments.number("count")
        self._looking.in_frame(held.frame)
        found = self._debugger.inspection.tensor_bytes(held.text, max(offset, 0), min(count, MOST_BYTES))
        before = min(max(-offset, 0), count)  # what a client asks for before the first element
        if before:
            return {"address": hex(int(found["address"])), "unreadableBytes": before}
        left = count - int(found["count"])
        return {
            "address": hex(int(found["address"])),
            **({"data": found["data"]} if found["data"] else {}),
            **({"unreadableBytes": left} if left else {}),
        }
