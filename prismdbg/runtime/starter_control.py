"""Asks the starter of a running rank for an image, or for the way back to one. The protocol is in `starter_spec`."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.runtime.foreign_files import MAX_LOG_BYTES, read_regular
from prismdbg.runtime.spec import CONTROL_FOLDER
from prismdbg.runtime.starter_spec import CONTROL

MAX_ANSWER_BYTES = 16 << 20

_MORE_S = 30.0  # than the starter's own bound on the engine: for ending what runs and copying files


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """refusal: empty where it was done; log: what the engine said, empty where it was not the engine that refused.

    left: files that could not be made as they were. seal: by which the image is known again.
    """

    refusal: str = ""
    log: str = ""
    left: tuple[str, ...] = ()
    seal: str = ""


class StarterControl:
    """One request a call. `RankLost` when there is no starter any more."""

    def __init__(self, session: Path, engine_bound_s: float) -> None:
        self._folder = session / CONTROL_FOLDER
        self._engine_bound_s = engine_bound_s

    def save(self, name: str, least_s: float = 0.0) -> Answer:
        """least_s: how long the engine may take at least, also where the starter's own bound is shorter."""
        return self._ask("save", name, least_s)

    def return_to(self, name: str, seal: str, least_s: float = 0.0) -> Answer:
        """seal: of the answer to `save`, which another starter may have given. least_s: as in `save`."""
        return self._ask("return", name, least_s, seal=seal)

    def _ask(self, verb: str, name: str, least_s: float, **more: str) -> Answer:
        bound_s = max(self._engine_bound_s, least_s) + _MORE_S
        request = {"do": verb, "name": name, "least_s": least_s, **more}
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(bound_s)
                sock.connect(str(self._folder / CONTROL))
                sock.sendall(json.dumps(request).encode() + b"\n")
                with sock.makefile("rb") as stream:
                    line = stream.readline(MAX_ANSWER_BYTES)
        except TimeoutError:
            raise WaitTimeout(
                f"waited {bound_s:g} s for the starter to carry out {verb!r} for checkpoint {name}",
                hint="try again when the machine is less busy",
            ) from None
        except OSError as error:
            raise RankLost(
                f"the rank's sandbox does not answer: {error}", hint="run the session again: its sandbox is gone"
            ) from error
        if not line.endswith(b"\n"):
            raise RankLost(
                f"the rank's sandbox ended during {verb!r} of checkpoint {name}",
                hint="run the session again: its sandbox is gone",
            )
        try:
            answer = json.loads(line)
            if answer["ok"]:
                return Answer(left=tuple(map(str, answer["left"])), seal=str(answer["seal"]))
            what, log = str(answer["what"]), str(answer["log"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RankLost(
                f"the rank's sandbox gave no answer to {verb!r} of checkpoint {name} that can be read",
                hint="replay the capsule again",
            ) from None
        return Answer(refusal=what, log=self._log(log))

    def _log(self, name: str) -> str:
        return read_regular(self._folder / name, MAX_LOG_BYTES).decode("utf-8", "replace") if name else ""
