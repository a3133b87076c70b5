"""What a capsule says about itself: a typed value, its JSON, and the strict way back. Touches no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from prismdbg.capsule import checked_json, layout
from prismdbg.capsule.checked_json import Fields
from prismdbg.capsule.limits import MAX_FACTS, MAX_FILES, MAX_MANIFEST_BYTES, MAX_NAMED, MAX_RANKS
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import Group
from prismdbg.model.moment import Moment
from prismdbg.model.plain_text import one_line

FORMAT = 2
OLDEST_READER = 1
OLDEST_WITH_STATE = 2  # an older reader does not know that origin

_MOST = {"groups": MAX_NAMED} | dict.fromkeys(("device_kinds", "versions", "hardware", "notes"), MAX_FACTS)

E = TypeVar("E", bound=StrEnum)


class Origin(StrEnum):
    """Where a replay of the capsule starts."""

    IMAGE = "image"  # a checkpoint taken at moment A
    START = "start"  # the first line of the program
    STATE = "state"  # the program's restore point, with the training state of a step boundary

    @property
    def word(self) -> str:
        """What users read and type: a checkpoint is `image` only on disk and in JSON."""
        return "checkpoint" if self is Origin.IMAGE else str(self)

    @property
    def starts_program(self) -> bool:
        """Whether the program itself is started: its files and its environment are those of its beginning."""
        return self is not Origin.IMAGE


class IncidentKind(StrEnum):
    """Why the capsule was made. REQUEST: by hand, nothing was wrong."""

    REQUEST = "request"
    EXCEPTION = "exception"
    NAN = "nan"
    HANG = "hang"
    OUT_OF_MEMORY = "oom"
    SLOW = "slow"
    SIGNAL = "signal"
    LOST = "lost"  # the rank died


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """`text` is one line, whatever the program's message was: it stands in sentences of ours, and at their end."""

    kind: IncidentKind
    text: str
    moment: Moment | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", one_line(self.text))


@dataclass(frozen=True, slots=True)
class FileEntry:
    size_bytes: int
    sha256: str


def _no_texts() -> Mapping[str, str]:
    return MappingProxyType({})


def _no_files() -> Mapping[str, FileEntry]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A replay runs from `moment_a` to `moment_b`. `files` names every other file of the capsule.

    replayable_from: the first moment from which everything the rank received is there; `moment_a` unless the window
    was too small, and past `moment_b` where nothing is there. `created_ns` counts from 1970. `notes` are sentences
    for people, one line each. emulated: the mesh of a world that was not there, empty where the job was real.
    """

    created_ns: int
    job: str
    rank: int
    world_size: int
    moment_a: Moment
    moment_b: Moment
    incident: Incident
    origin: Origin
    contains_raw_memory: bool
    replayable_from: Moment
    groups: tuple[Group, ...] = ()
    device_kinds: tuple[str, ...] = ("cpu",)
    versions: Mapping[str, str] = field(default_factory=_no_texts)
    hardware: Mapping[str, str] = field(default_factory=_no_texts)
    notes: tuple[str, ...] = ()
    emulated: str = ""
    files: Mapping[str, FileEntry] = field(default_factory=_no_files)
    format: int = FORMAT
    oldest_reader: int = OLDEST_READER

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(one_line, self.notes)))

    @property
    def not_replayable(self) -> str:
        """Why a replay from the start moment is impossible, in a few words; empty where it is not."""
        if self.replayable_from <= self.moment_a:
            return ""
        if self.replayable_from > self.moment_b:
            return "not replayable: no received data was kept"
        start = self.replayable_from
        return f"not replayable before {start}: some of the data received since the start moment is missing"

    @property
    def size_bytes(self) -> int:
        """All files but the manifest itself."""
        return sum(entry.size_bytes for entry in self.files.values())

    def to_json(self) -> dict[str, Any]:
        incident = self.incident
        return {
            "format": self.format,
            "oldest_reader": self.oldest_reader,
            "created_ns": self.created_ns,
            "job": self.job,
            "rank": self.rank,
            "world_size": self.world_size,
            "moment_a": str(self.moment_a),
            "moment_b": str(self.moment_b),
            "replayable_from": str(self.replayable_from),
            "incident": {
                "kind": incident.kind,
                "text": incident.text,
                "moment": None if incident.moment is None else str(incident.moment),
            },
            "origin": self.origin,
            "contains_raw_memory": self.contains_raw_memory,
            "groups": [
                {"name": g.name, "ranks": list(g.ranks), "desc": g.desc, "backend": g.backend} for g in self.groups
            ],
            "device_kinds": list(self.device_kinds),
            "versions": dict(self.versions),
            "hardware": dict(self.hardware),
            "notes": list(self.notes),
            **({"emulated": self.emulated} if self.emulated else {}),
            "files": {n: {"size_bytes": e.size_bytes, "sha256": e.sha256} for n, e in sorted(self.files.items())},
        }

    def to_bytes(self) -> bytes:
        return checked_json.dumps(self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes, where: str = layout.MANIFEST) -> Manifest:
        """`CapsuleError` for whatever is not exactly a manifest this program can read."""
        if len(data) > MAX_MANIFEST_BYTES:
            raise CapsuleError(
                f"{where} has {len(data)} bytes; the limit is {MAX_MANIFEST_BYTES}",
                hint="fetch the capsule again: this copy was altered",
            )
        return _from_fields(checked_json.parse(data, where))


def _from_fields(fields: Fields) -> Manifest:
    version, oldest = fields.integer("format", least=1), fields.integer("oldest_reader", least=1)
    if oldest > FORMAT:
        raise CapsuleError(
            f"{fields.where} needs a reader of format {oldest}; this version reads {FORMAT}",
            hint="use a newer prismdbg",
        )
    for name, most in _MOST.items():
        fields.require_at_most(most, name)
    manifest = Manifest(
        format=version,
        oldest_reader=oldest,
        created_ns=fields.integer("created_ns"),
        job=fields.text("job"),
        rank=fields.integer("rank", most=MAX_RANKS),
        world_size=fields.integer("world_size", least=1, most=MAX_RANKS),
        moment_a=fields.moment("moment_a"),
        moment_b=fields.moment("moment_b"),
        replayable_from=fields.moment("replayable_from"),
        incident=_incident(fields.fields("incident"), strict=version <= FORMAT),
        origin=_choice(fields, "origin", Origin),
        contains_raw_memory=fields.boolean("contains_raw_memory"),
        groups=tuple(_group(group) for group in fields.objects("groups")),
        device_kinds=fields.texts("device_kinds"),
        versions=MappingProxyType(fields.text_map("versions")),
        hardware=MappingProxyType(fields.text_map("hardware")),
        notes=fields.texts("notes"),
        emulated=fields.text("emulated") if fields.has("emulated") else "",
        files=MappingProxyType(_files(fields)),
    )
    if version <= FORMAT:  # a newer writer may add fields that an older reader can do without
        fields.refuse_others()
    _check(manifest, fields)
    return manifest


def _check(manifest: Manifest, fields: Fields) -> None:
    if manifest.rank >= manifest.world_size:
        fields.fail("rank", f"is {manifest.rank} in a job of {manifest.world_size}")
    if manifest.moment_b < manifest.moment_a:
        fields.fail("moment_b", f"is {manifest.moment_b}, before moment_a {manifest.moment_a}")
    if not manifest.moment_a <= manifest.replayable_from:
        fields.fail("replayable_from", f"is {manifest.replayable_from}, before moment_a {manifest.moment_a}")
    if manifest.oldest_reader > manifest.format:
        fields.fail("oldest_reader", f"is {manifest.oldest_reader}, newer than the format {manifest.format}")
    if manifest.origin is Origin.IMAGE and not manifest.contains_raw_memory:
        fields.fail("contains_raw_memory", "is false, and a checkpoint is raw memory")


def _incident(fields: Fields, *, strict: bool) -> Incident:
    moment = fields.moment("moment") if fields.has("moment") else None
    incident = Incident(kind=_choice(fields, "kind", IncidentKind), text=fields.text("text"), moment=moment)
    if strict:
        fields.refuse_others()
    return incident


def _group(fields: Fields) -> Group:
    return Group(
        name=fields.text("name"),
        ranks=fields.ranks("ranks"),
        desc=fields.text("desc"),
        backend=fields.text("backend"),
    )


def _files(fields: Fields) -> dict[str, FileEntry]:
    entries = fields.object_map("files")
    if len(entries) > MAX_FILES:
        fields.fail("files", f"names {len(entries)} files; the limit is {MAX_FILES}")
    if layout.MANIFEST in entries:
        fields.fail("files", "names the manifest itself")
    folders = {name.rpartition("/")[0] for name in entries}
    if clash := entries.keys() & folders:
        fields.fail("files", f"names {min(clash)!r} as a file and as a folder")
    return {
        layout.check_file_name(name): FileEntry(entry.integer("size_bytes"), entry.sha256("sha256"))
        for name, entry in entries.items()
    }


def _choice(fields: Fields, name: str, kinds: type[E]) -> E:
    text = fields.text(name)
    try:
        return kinds(text)
    except ValueError:
        fields.fail(name, f"is {text[:40]!r}, not one of {', '.join(kinds)}")
