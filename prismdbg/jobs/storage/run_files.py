"""What stands in the JSON files of a run folder, by their names. They are foreign: a run may be copied around."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from prismdbg.capsule.checked_json import Count, MomentText, Word, checked
from prismdbg.capsule.log.reader import ATTEMPT
from prismdbg.capsule.rank_json import RankJson
from prismdbg.errors import CapsuleError


def is_attempt(name: str) -> str:
    return "" if ATTEMPT.fullmatch(name) else f"is {name[:40]!r}, not the name of a rank's folder"


Attempt = Annotated[str, is_attempt]


class EmulatedJson(TypedDict):
    world: Count
    mesh: dict[str, Count]
    steps: NotRequired[Count]
    peers: NotRequired[list[str]]
    seed: NotRequired[int]
    ranks: NotRequired[list[Count]]


class ProcessJson(TypedDict):
    pid: Count
    started_ticks: Count
    boot_id: str
    pid_namespace: Count


class RunJson(TypedDict, total=False):
    command: list[str]
    job: str
    restart: Count
    started_wall_ns: Count
    supervisor: ProcessJson
    supervisor_pid: Count  # of older versions, in its place
    emulated: EmulatedJson | None


class IncidentJson(TypedDict, total=False):
    text: str
    kind: str
    moment: MomentText | None
    ranks: list[Count]
    attempt: Count


class SupervisorJson(TypedDict, total=False):
    incidents: list[Any]  # see `whole_incidents`
    capsules: list[Word]
    problems: list[str]
    deaths: list[Attempt]
    exit_code: int | None
    ended_wall_ns: Count


class JobJson(TypedDict):
    id: Word
    supervisors: NotRequired[Count]


class NodeJson(TypedDict, total=False):
    host: str
    boot_id: str
    restart: Count
    local: Word
    supervisor_pid: Count
    supervisor_ticks: Count
    namespaces: dict[str, Count]


class ToldJson(TypedDict, total=False):
    """For how long the supervisor knew that it was told to end, when this was written."""

    age_s: float


class OverJson(TypedDict, total=False):
    """For how long it was known that an incident is over, when this was written."""

    age_s: float
    since_step: int
    of_thread: bool


class RestartJson(TypedDict, total=False):
    first_attempt: Count


class ProgressJson(TypedDict):
    """How far a rank came, as its supervisor saw it. no_state, no_checkpoint: why a capsule of it can start at none,
    empty where it can."""

    moment: MomentText
    collectives: Count
    in_flight: Count
    log_bytes: Count
    payload_bytes: Count
    lost: str
    word: str
    no_state: NotRequired[str]
    no_checkpoint: NotRequired[str]


class BeatJson(TypedDict, total=False):
    """busy: ranks that compute or wait for a CPU while others may wait for them; held_s: how long ago ranks of the node
    were held for an image, from when to when."""

    beat: Count
    pid: Count
    living: list[Attempt]
    gone: list[Attempt]
    progress: dict[str, ProgressJson]
    published: str
    busy: list[Count]
    held_s: list[list[float]]


class PublishJson(TypedDict):
    """`newest_bytes`: of each log that whoever asks reads; all of it where it is missing."""

    asked: str
    newest_bytes: NotRequired[Count]


class PublishedJson(TypedDict, total=False):
    by: str


class ConfigJson(TypedDict, total=False):
    ranks: list[Count]
    nan_check: bool
    state_every: Count


class CheckpointJson(TypedDict):
    moment: MomentText
    past_records: Count
    in_flight: list[Count]
    paused_ns: Count
    images_bytes: Count


class NeedsJson(TypedDict):
    rank: Attempt
    from_record: Count


def whole_incidents(supervisor: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those that can be read: a damaged one hides no other."""
    found = []
    for entry in supervisor.get("incidents", []):
        with contextlib.suppress(CapsuleError):
            checked(IncidentJson, entry, "an incident")
            found.append(entry)
    return found


KINDS: dict[str, Any] = {
    "run.json": RunJson,
    "supervisor.json": SupervisorJson,
    "config.json": ConfigJson,
    "job.json": JobJson,
    "node.json": NodeJson,
    "told.json": ToldJson,
    "over.json": OverJson,
    "restart.json": RestartJson,
    "beat.json": BeatJson,
    "publish.json": PublishJson,
    "published.json": PublishedJson,
    "rank.json": RankJson,
    "checkpoint.json": CheckpointJson,
    "needs.json": NeedsJson,
}
