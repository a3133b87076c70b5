"""What the supervisor saw and did, as `supervisor.json` keeps it: incidents, their capsules, problems, the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident
from prismdbg.capsule.secrets.masking import (
    redact_text,
)
from prismdbg.errors import NotReplayable, shortened
from prismdbg.jobs.capture.secret_rules import find
from prismdbg.jobs.storage.run_folder import write_json
from prismdbg.jobs.storage.run_report import MOST_SAID

Entry = dict[str, Any]

MOST_PROBLEMS = 500


class Ledger:
    """Says each thing once and saves at each change. `keep`: capsules of incidents, at most, however they are made.

    made_elsewhere: how many other supervisors of the job have made.

    A disk that is full, or a run folder that is gone, is said once.
    """

    def __init__(
        self,
        path: Path,
        job_pid: int,
        keep: int,
        say: Callable[[str], None],
        made_elsewhere: Callable[[], int] = lambda: 0,
    ) -> None:
        self._made_elsewhere = made_elsewhere
        self._path = path
        self._keep = keep
        self._say = say
        self._unsaved = False
        self._changing = RLock()  # another thread may be writing it down
        self._told: set[str] = set()
        self._state: dict[str, Any] = {
            "job_pid": job_pid,
            "incidents": [],
            "capsules": [],
            "evidence": [],
            "problems": [],
        }

    def incident(self, incident: Incident, folders: Sequence[str]) -> Entry:
        """`folders`: the logs of the ranks it is about; their names hold rank and attempt. The text stands without what
        the rules of the host find, those of the user among them."""
        text = redact_text(incident.text, find=find)
        entry = {
            "kind": incident.kind,
            "text": text,
            "moment": str(incident.moment) if incident.moment else None,
            "ranks": [int(name.partition(".")[0]) for name in folders],
            "attempt": max((int(name.partition(".")[2] or 0) for name in folders), default=0),
            "capsules": [],
        }
        with self._changing:
            self._state["incidents"].append(entry)
        self._say(f"incident: {shortened(text, MOST_SAID)}")
        self.save()
        return entry

    def has_room(self) -> bool:
        """Whether one more capsule may be made; that there is none is a problem."""
        made = len(self._state["capsules"]) + len(self._state["evidence"])
        if made + self._made_elsewhere() < self._keep:
            return True
        self.problem(f"no further capsule is created: the limit is {self._keep}", "raise --keep")
        return False

    def capsule(self, entry: Entry, capsule: Capsule) -> None:
        with self._changing:
            entry["capsules"].append(str(capsule.path))
            self._state["capsules"].append(str(capsule.path))
        self._say(f"capsule: {capsule.path}")
        self.save()

    def evidence(self, entry: Entry, found: NotReplayable) -> None:
        """What was kept instead of a capsule."""
        with self._changing:
            entry.setdefault("evidence", []).append(str(found.evidence))
            self._state["evidence"].append(str(found.evidence))
        self.problem(str(found), found.hint)

    def problem(self, text: str, hint: str = "", *, about: str = "") -> None:
        """about: tells it from other problems, where its text does not: one with this is said and kept once. The list
        has an end, for readers take a file of some length at most, and it is written anew each time."""
        if (about or text) in self._told or len(self._told) > MOST_PROBLEMS:
            return
        self._told.add(about or text)
        if len(self._told) > MOST_PROBLEMS:
            text, hint = f"there are more than {MOST_PROBLEMS} problems: further ones are neither said nor kept", ""
        with self._changing:
            self._state["problems"].append(shortened(text, MOST_SAID))
        self._say(f"{text}{f'; {hint}' if hint else ''}")
        self.save()

    def note(self, **facts: Any) -> None:
        """Any thread may call it."""
        with self._changing:
            self._state |= facts
        self.save()

    def save(self) -> None:
        try:
            with self._changing:  # what another thread has noted meanwhile is never overwritten by an older state
                write_json(self._path, self._state)
        except OSError as error:
            if not self._unsaved:
                self._unsaved = True
                self._say(f"the supervisor's report cannot be written: {error}")
