"""The records of a log that are JSON: groups, and what the recorder noted. Each field is checked by its name."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, Any, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Count, Fields, MomentText, Word
from prismdbg.capsule.log.events import Note
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.model.collective import Group
from prismdbg.model.moment import Moment


def is_incident(kind: str) -> str:
    return "" if kind in list(IncidentKind) else f"is {kind[:40]!r}, which is not an incident kind"


PARTS = "parts"  # of an uneven all-to-all: bytes to and from each member
DECISIONS = "decisions"  # of an emulated rank: lines that decide by what may rest on synthesized data
SKIPPED = "skipped"  # another optimizer than the first, by a gradient scaler, of whose step's mark it is not told
TAKEN = "taken"  # a step of such an optimizer, the first since
NO_STATE = "no_state"  # the rank takes no further state snapshots
SHAPING = "shaping"  # counts that an emulated rank was given and no peer computed from the job's own values
PROGRAM = "program"  # that the rank started: two notes of each, of its start and of its end
DRIFT = "drift"  # of a paced rank: how long its peers compute in a step, in millionths of what was scheduled
# What they say is a path, which a replay needs as it is; a rank notes ten thousands of them.
PATH_NOTES = ("built", "file", "folder", "made", "listed", "ran")
MOST_PLACES = 64  # of exceptions of a rank, that have a number and are counted
NOT_IN_PROLOGUE = "not_in_prologue"  # what of the time before the restore point is not kept, as a sentence
DEVICE_WAITS = "device_waits"  # of a paced rank: a group whose calls run on streams; at the end, how long waits took


class NoteFields(TypedDict, total=False):
    """What notes of any kind say by the same name; None where they do not know. Other fields are for newer readers."""

    time_ns: int
    seen_ns: int | None
    moment: MomentText | None
    path: Word | None
    text: str | None
    type: str | None
    incident: Annotated[str, is_incident] | None
    traceback: list[str] | None
    code: int | None
    step: Count | None
    ppm: Count
    waited_ns: int | None
    record_id: Count | None
    at_issue: bool | None
    hash: str | None
    key: str | None
    value: str | None
    nth: int | None
    place: Count
    optimizer: Count | None
    op: Word
    group: Word | None
    identity: str | None
    sent: dict[str, int]
    rows: list[dict[str, Any]]
    parts_sent: list[Count]
    parts_received: list[Count]
    log_bytes: int
    peak_bytes: int
    shared_bytes: int
    arguments: list[str]
    folder: str
    errno: int
    out: str
    err: str
    cut: bool
    run: dict[str, Any]


# What a reader asks for without another way out.
_NEEDED = {
    "built": ("path",),
    "failed": ("record_id", "type", "text", "at_issue"),
    "file": ("path",),
    "folder": ("path",),
    "listed": ("path",),
    "made": ("path", "moment"),
    "ran": ("path",),
    "parts": ("identity", "parts_sent", "parts_received"),
    DRIFT: ("step", "ppm"),
    "processor": ("step", "waited_ns"),
    PROGRAM: ("arguments", "folder", "nth"),
    SKIPPED: ("step",),
    TAKEN: ("optimizer",),
    "unknown": ("op", "text"),
}


def checked_note(fields: Fields) -> dict[str, Any]:
    """The note as it is. `CapsuleError` where a field is not what it must be, or is missing."""
    kind = fields.text("kind")
    checked_json.checked(NoteFields, fields.value, fields.where)
    for name in _NEEDED.get(kind, ()):
        if not fields.has(name):
            fields.fail(name, "is missing")
    return fields.value


def read_group(fields: Fields) -> Group:
    return Group(
        name=fields.text("name"),
        ranks=fields.ranks("ranks"),
        desc=fields.text("desc") if fields.has("desc") else "",
        backend=fields.text("backend") if fields.has("backend") else "",
    )


def moment_of(note: dict[str, Any]) -> Moment | None:
    """Where the rank was; None where the note does not say."""
    text = note.get("moment")
    return None if text is None else Moment.parse(text)


def raised_at(note: Mapping[str, Any]) -> Hashable:
    """What exceptions have in common that came to the top from one place of the program, whatever their texts say: the
    type, the frames, and whether it was in another thread than the main one."""
    frames = tuple(line for line in note.get("traceback") or () if line.startswith('  File "'))
    return note.get("type"), bool(note.get("thread")), frames


def traceback_of(notes: Iterable[Note], note: Mapping[str, Any]) -> list[str]:
    """Returns the lines of an exception's traceback. A rank that has noted some of one place leaves out the traceback
    of later ones, which is the same. `notes`: of its log."""
    if note.get("traceback") or not note.get("place"):
        return [str(line) for line in note.get("traceback") or []]
    alike = (n.data for n in notes if n.kind == "incident" and n.data.get("place") == note["place"])
    lines: list[str] = next((each["traceback"] for each in alike if each.get("traceback")), [])
    return [*lines[:-1], f"{note.get('type')}: {note.get('text')}\n"]


def exit_codes(notes: Iterable[Note]) -> list[int]:
    """Of the exits that were noted, in order; without those of which the code is not known."""
    codes = (note.data.get("code", 0) for note in notes if note.kind == "exit")
    return [code for code in codes if code is not None]
