"""Dumps of PyTorch's Flight Recorder (pickle or JSON, one file a rank) as the logs of a job.

The format is that of `c10d/FlightRecorder.hpp` (dump version 2.10; older ones lack fields that are optional here), or
that of torchcomms, which `torchcomms.as_c10d` rewrites. A dump contains the last collectives of one rank. It contains
no optimizer steps, no values and no end of the job, and the clocks of two machines differ: all that is said of a job
from dumps alone rests on the order of its calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from prismdbg.capsule import checked_json
from prismdbg.capsule.limits import MAX_IMPORTED_RANKS
from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import CapsuleError, UsageError, quoted
from prismdbg.importers import torchcomms
from prismdbg.importers.coalesced import without_ends
from prismdbg.importers.dump_form import Dump, Entry
from prismdbg.importers.file_rank import rank_of_name
from prismdbg.importers.group_names import own_names
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.importers.job_groups import JobGroups
from prismdbg.importers.plain_pickle import read_pickle
from prismdbg.importers.torch_names import OPS_BY_TITLE, device_of, dtype_of
from prismdbg.model.collective import Collective, Frame, Group, Identity, State, TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.model.ops import Movement, ops_of
from prismdbg.model.plurals import counted

MAX_DUMP_BYTES = 32 << 20  # 20,000 collectives with their stacks
MOST_PARTS = 1 << 22  # frames, and tensors with their sizes and types, of one dump
MOST_FILES = 16_384
_RANK = re.compile(r"(\d{1,8})(?:\.\w+)*$")
_LISTS = ("frames", "input_sizes", "input_dtypes", "output_sizes", "output_dtypes")
_HEAD_BYTES = 4096
_DEFAULT_GROUP = "default_pg"

# One that is over for one member was called by all.
_CALLED_BY_ALL = ops_of(
    Movement.ALL_REDUCE, Movement.ALL_GATHER, Movement.REDUCE_SCATTER, Movement.ALL_TO_ALL, Movement.BARRIER
)
_PEER = re.compile(r"(?P<here>\d{1,8})(?:->|<-)(?P<peer>\d{1,8})")
_THREAD = re.compile(r"\d{1,20}")
_LONGEST_NAME = 200  # of an operator


def find_dumps(path: Path) -> dict[int, Path]:
    """The dump of each rank in a folder, or the one in a file; empty where there is none. The rank is the number at the
    end of the file's name, as in torch's `nccl_trace_rank_3`. Of a rank with a pickle and a JSON text the pickle is
    taken, which has stacks. Raises `UsageError` where two dumps are of one rank, or a dump's name has no rank."""
    files = [path] if path.is_file() else sorted(islice(path.iterdir(), MOST_FILES)) if path.is_dir() else []
    found: dict[int, list[Path]] = {}
    for file in files:
        if file.is_file() and not file.is_symlink() and is_dump(file):
            rank = rank_of_name(file, _RANK, "Flight Recorder dump", "nccl_trace_rank_3")
            found.setdefault(rank, []).append(file)
    return {rank: _chosen(rank, dumps) for rank, dumps in sorted(found.items())}


def _chosen(rank: int, dumps: list[Path]) -> Path:
    pickles = [file for file in dumps if not _is_json(_head(file))]
    if len(of_one_form := pickles or dumps) > 1:
        names = ", ".join(file.name for file in of_one_form[:4])
        raise UsageError(
            f"rank {rank} has several Flight Recorder dumps: {names}",
            hint="give one file for each rank: move those of other runs and of other libraries away",
        )
    return of_one_form[0]


def is_dump(file: Path) -> bool:
    head = _head(file)
    if _is_json(head):
        if b'"schemaVersion"' in head or b'"traceEvents"' in head or b'"schema"' in head:
            return False  # traces of torch.profiler, which describe groups by the same names
        return b'"entries"' in head or b'"comm_lib_version"' in head or b'"pg_config"' in head
    return head.startswith(b"\x80") and b"version" in head[:64]


def _is_json(head: bytes) -> bool:
    return head.lstrip().startswith(b"{")


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_HEAD_BYTES)
    except OSError:
        return b""


def read_dumps(dumps: Mapping[int, Path]) -> ImportedJob:
    """What all dumps together say. A dump that cannot be read is damaged; the others speak without it."""
    read: dict[int, Dump] = {}
    damaged: dict[int, str] = {}
    for rank, path in dumps.items():
        try:
            read[rank] = _read(path)
        except CapsuleError as error:
            damaged[rank] = str(error)
    members = _members(read)
    _give_own_names(read, members)
    read, of_torchcomms = torchcomms.as_c10d(read)
    for dump in read.values():
        dump["entries"] = without_ends(dump["entries"])
    groups, inferred = _groups(read, members, JobGroups(dumps.values()))
    over = frozenset(_over(entry) for dump in read.values() for entry in dump["entries"] if _is_over(entry))
    logs = {rank: _log(rank, dump, groups, over) for rank, dump in read.items()}
    return ImportedJob(
        logs=logs,
        damaged=damaged,
        gaps=(*_gaps(read, logs, [groups[name].title for name in sorted(inferred)]), *of_torchcomms),
    )


def _read(path: Path) -> Dump:
    data = checked_json.read_bytes(path, limit_bytes=MAX_DUMP_BYTES)
    value = checked_json.parse(data, str(path)).value if _is_json(data) else read_pickle(data, str(path))
    dump = checked_json.checked(Dump, value, str(path))
    entries = dump.setdefault("entries", [])
    parts = 0
    for number, entry in enumerate(entries):
        where = f"{path}: entries[{number}]"
        if (parts := parts + _parts(entry)) > MOST_PARTS:
            raise CapsuleError(
                f"{where}: the frames and tensors are more than {MOST_PARTS}",
                hint="record fewer entries (TORCH_FR_BUFFER_SIZE)",
            )
        entries[number] = _entry(entry, where)
    return dump


def _parts(entry: object) -> int:
    """Of what is not checked yet: a pickle can list the same list again and again in a few bytes."""
    told = entry if isinstance(entry, dict) else {}
    lists = [value for name in _LISTS if isinstance(value := told.get(name), list)]
    return sum(1 + len(part) if isinstance(part, list) else 1 for value in lists for part in value)


def _entry(entry: object, where: str) -> Entry:
    group = entry.get("process_group") if isinstance(entry, dict) else None
    if isinstance(entry, dict) and isinstance(group, tuple | list):
        if len(group) != 2:
            raise CapsuleError(
                f"{where}: process_group must be a name and a description",
                hint="give another file: this is not a file of the Flight Recorder, or it was altered",
            )
        entry = {**entry, "process_group": list(group)}
    return checked_json.checked(Entry, entry, where)


def _members(dumps: Mapping[int, Dump]) -> dict[str, tuple[int, ...]]:
    """By text: many groups, of a dump or of several, can have one list."""
    configs = (config for dump in dumps.values() for config in dump.get("pg_config", {}).values())
    texts = dict.fromkeys(config.get("ranks", "") for config in configs)
    return {text: _ranks(text) for text in texts}


def _give_own_names(dumps: Mapping[int, Dump], members: Mapping[str, tuple[int, ...]]) -> None:
    listed = {rank: _listed(dump, members) for rank, dump in dumps.items()}
    for rank, names in own_names(listed).items():
        dump = dumps[rank]
        for entry in dump["entries"]:
            name, description = entry["process_group"]
            entry["process_group"] = [names.get(name, name), description]
        configs = {config.get("name") or key: config for key, config in dump.get("pg_config", {}).items()}
        dump["pg_config"] = {
            names.get(name, name): config | {"name": names.get(name, name)} for name, config in configs.items()
        }


def _listed(dump: Dump, members: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    configs = dump.get("pg_config", {}).items()
    return {config.get("name") or key: members[config.get("ranks", "")] for key, config in configs}


def _groups(
    dumps: Mapping[int, Dump], members: Mapping[str, tuple[int, ...]], of_job: JobGroups
) -> tuple[dict[str, Group], frozenset[str]]:
    """By name, and those whose members no dump lists: then the ranks that called something in it are taken for them,
    and all ranks for the default group's."""
    listed: dict[str, tuple[int, ...]] = {}
    seen: dict[str, set[int]] = {}
    descriptions: dict[str, str] = {}
    for rank, dump in dumps.items():
        listed |= {name: ranks for name, ranks in _listed(dump, members).items() if ranks}
        for entry in dump["entries"]:
            name, description = entry["process_group"]
            seen.setdefault(name, set()).add(rank)
            descriptions.setdefault(name, description)
    world = 1 + max([*dumps, *(rank for ranks in members.values() for rank in ranks)], default=-1)
    inferred = frozenset(seen.keys() - listed.keys())
    taken = {
        name: of_job.members(name, 0, 1, world) if descriptions[name] == _DEFAULT_GROUP else tuple(sorted(seen[name]))
        for name in inferred
    }
    return {
        name: Group(name=name, ranks=ranks, desc=descriptions.get(name, "")) for name, ranks in (taken | listed).items()
    }, inferred


def _ranks(text: str) -> tuple[int, ...]:
    """Of a list in a text, as torch writes it: `[0, 2]`."""
    numbers = [int(number) for number in re.findall(r"\d{1,8}", text)]
    return tuple(dict.fromkeys(number for number in numbers if number < MAX_IMPORTED_RANKS))


def _is_over(entry: Entry) -> bool:
    """gloo's entries stay scheduled: torch takes one off its list, a little later, when its work is over."""
    if entry["profiling_name"].startswith("gloo:"):
        return entry.get("retired", False)
    return entry["state"] == "completed"


def _over(entry: Entry) -> tuple[str, int, bool]:
    return entry["process_group"][0], entry["collective_seq_id"], entry["is_p2p"]


def _log(rank: int, dump: Dump, groups: dict[str, Group], over: frozenset[tuple[str, int, bool]]) -> RankLog:
    """`over`: what is over for any rank. gloo is late to say so, and a call that all have come to is no hang there."""
    entries: list[Entry] = dump["entries"]
    first = entries[0]["record_id"] if entries else 0
    kept = [entry for entry in _one_each(entries) if first == 0 or not entry["is_p2p"]]
    messages: Counter[_Call] = Counter()
    calls = []
    for place, entry in enumerate(kept):
        is_gloos = entry["profiling_name"].startswith("gloo:") and not entry["is_p2p"]
        call = _call(entry)
        is_over = _is_over(entry) or (is_gloos and call.op in _CALLED_BY_ALL and _over(entry) in over)
        calls.append(_collective(first + place, entry, call, messages[call], is_over))
        messages[call] += 1
    return RankLog(
        rank=rank,
        pid=0,
        wall_offset_ns=0,
        collectives=calls,
        groups=groups,
    )


def _one_each(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The parts of a coalesced call have its sequence number: the first stands for them."""
    seen: set[tuple[str, int]] = set()
    for entry in entries:
        key = entry["process_group"][0], entry["collective_seq_id"]
        if entry["is_p2p"] or key not in seen:
            yield entry
        if not entry["is_p2p"]:
            seen.add(key)


class _Call(NamedTuple):
    """What a profiling title says: `nccl:all_reduce`, `nccl:send 0->1`. `peer`: in the group, -1 for none."""

    group: str
    op: str
    peer: int


def _call(entry: Entry) -> _Call:
    label, _, ends = entry["profiling_name"].rpartition(":")[2].partition(" ")
    label = label[:_LONGEST_NAME]  # many entries can share a long title, and each keeps a text of its own
    peer = int(found["peer"]) if (found := _PEER.fullmatch(ends)) else -1
    return _Call(entry["process_group"][0], OPS_BY_TITLE.get(label, label), peer)


def _collective(record_id: int, entry: Entry, call: _Call, nth: int, is_over: bool) -> Collective:
    """`nth`: how many like it came before. A completion of which the time is not known is as early as it may be."""
    created, completed = entry["time_created_ns"], entry.get("time_discovered_completed_ns") or None
    group, op, peer = call
    device = device_of(entry["profiling_name"].partition(":")[0])
    return Collective(
        record_id=record_id,
        moment=Moment(0, record_id + 1),
        identity=Identity(group, nth, op, peer) if entry["is_p2p"] else Identity(group, entry["collective_seq_id"]),
        op=op,
        group=group,
        is_p2p=entry["is_p2p"],
        is_async=False,
        root=peer,
        tag=0,
        reduce_op="",
        timeout_ms=max(entry.get("timeout_ms", 0), 0),
        inputs=_tensors(entry.get("input_sizes", []), entry.get("input_dtypes", []), device),
        outputs=_tensors(entry.get("output_sizes", []), entry.get("output_dtypes", []), device),
        fingerprint=None,
        sent_nonfinite=False,
        time_created_ns=created,
        thread_id=int(thread) & (2**63 - 1) if _THREAD.fullmatch(thread := entry.get("thread_id", "")) else 0,
        frames=tuple(Frame(frame["filename"], frame["line"], frame["name"]) for frame in entry.get("frames", ())),
        state=State.COMPLETED if is_over else State.SCHEDULED,
        time_completed_ns=(completed or created) if is_over else None,
    )


def _tensors(sizes: list[list[int]], dtypes: list[str], device: str) -> tuple[TensorMeta, ...]:
    names = [*dtypes, *[""] * len(sizes)]
    return tuple(TensorMeta(tuple(shape), dtype_of(name), device) for shape, name in zip(sizes, names, strict=False))


def _gaps(dumps: Mapping[int, Dump], logs: Mapping[int, RankLog], inferred: Sequence[str]) -> Iterator[str]:
    yield "Flight Recorder dumps contain no steps, values or exits: moments count a rank's collectives, in step 0"
    if inferred:
        names = ", ".join(map(quoted, inferred[:4]))
        yield f"no dump lists the members of group {names}: the ranks that called it are taken for its members"
    if cut := [rank for rank, dump in dumps.items() if _leaves_messages_out(dump)]:
        ranks = ", ".join(map(str, cut[:8]))
        yield f"sends and receives of rank {ranks} are left out: the dump lacks the first, so none can be paired"
    over = [entry for dump in dumps.values() for entry in dump["entries"] if _is_over(entry)]
    if timeless := sum(not entry.get("time_discovered_completed_ns") for entry in over):
        yield f"when {counted(timeless, 'call')} ended is unknown: a wait in them counts as time after them"
    if bare := [rank for rank, log in logs.items() if log.collectives and not any(c.frames for c in log.collectives)]:
        ranks = ", ".join(map(str, bare[:8]))
        yield f"the dump of rank {ranks} has no stacks: c10d writes them into pickles only, torchcomms into no file"


def _leaves_messages_out(dump: Dump) -> bool:
    entries = dump["entries"]
    return bool(entries) and min(e["record_id"] for e in entries) > 0 and any(e["is_p2p"] for e in entries)
