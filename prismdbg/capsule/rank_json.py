"""What a rank says of itself in `rank.json`, in a run and, with what a capsule adds, in a capsule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Count, Word, at_most, between
from prismdbg.capsule.limits import (
    MAX_FACTS,
    MAX_LISTED_NAMES,
    MAX_MADE_FOLDERS,
    MAX_NAMED,
    MAX_PEAK_BYTES,
    MAX_PID,
    MAX_RANKS,
    MAX_START_BYTES,
    MAX_STRING_BYTES,
    MAX_THREADS,
    MAX_UID,
)
from prismdbg.capsule.log.clock_reads import MOST_EARLY, are_reads
from prismdbg.capsule.rank_path import has_more_folders, too_long, unfit
from prismdbg.capsule.spawned import is_spawned
from prismdbg.errors import CapsuleError

_ALTERED = "capture or fetch it again: the file is damaged or was altered"
_TWISTER_WORDS = 624  # of a Mersenne Twister's state; behind them stands how many of them are drawn
_POINTER_BYTES = 8
_MOST_WORDS = MAX_START_BYTES // _POINTER_BYTES
_OWN_BYTES = 4096  # for the name of a variable of ours


def is_environment(variables: Mapping[str, str]) -> str:
    """A rule: what a program can be started with."""
    for name, value in variables.items():
        if not name or "=" in name:
            return f"contains a variable with the invalid name {name[:60]!r}"
        if _string_bytes(name, value) > MAX_STRING_BYTES:
            return f"contains {name[:60]!r} with a value of {len(value):,} characters, too long to start a program with"
    return ""


def is_seeds(seeds: Mapping[str, Any]) -> str:
    """A rule: what `prismdbg.rank.recording.inputs.seeds` can put back."""
    for name, seed in seeds.items():
        if name == "torch" and not _is_within(seed, -(2**63), 2**64 - 1):
            return "torch must be a whole number of 64 bits"
        if name == "unseeded" and not _is_within(seed, 0, 2**128 - 1):
            return "unseeded must be a whole number of 128 bits"
        if name in ("random", "numpy.random") and not _is_twister(seed):
            return f"{name} must be the state of a Mersenne Twister: {_TWISTER_WORDS} words and a position"
    return ""


def _is_twister(state: object) -> bool:
    if not isinstance(state, list) or len(state) != _TWISTER_WORDS + 1:
        return False
    return all(_is_within(word, 0, 2**32 - 1) for word in state) and int(state[-1]) <= _TWISTER_WORDS


def _is_within(number: object, least: int, most: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def _string_bytes(*parts: str) -> int:
    """Of the parts with one byte between each, and the zero byte behind them."""
    return sum(len(part.encode("utf-8", "surrogateescape")) + 1 for part in parts)


def start_bytes(argv: Iterable[str], environment: Mapping[str, str]) -> int:
    """What the system counts when a program is started with them."""
    words = sum(_string_bytes(word) + _POINTER_BYTES for word in argv)
    return words + sum(_string_bytes(*pair) + _POINTER_BYTES for pair in environment.items())


def is_argument(word: str) -> str:
    """A rule, as `is_environment`."""
    size = _string_bytes(word)
    return f"has {size:,} bytes, too long to start a program with" if size > MAX_STRING_BYTES else ""


def are_few_folders(folders: list[str]) -> str:
    """A rule: each of them is made, and each on the way to it."""
    many = has_more_folders(folders, MAX_MADE_FOLDERS)
    return f"contains more than {MAX_MADE_FOLDERS:,} folders, those on the way to them counted" if many else ""


def make_a_variable(names: list[str]) -> str:
    """A rule: the rank is given them as one variable."""
    size = _string_bytes(*names)
    return (
        f"contains names of {size:,} bytes together, too long for a variable"
        if size > MAX_STRING_BYTES - _OWN_BYTES
        else ""
    )


AnyPath = Annotated[str, too_long]
AbsolutePath = Annotated[str, unfit]
few = at_most(MAX_NAMED)


_OF_A_START = ("executable", "orig_argv", "rank", "world_size", "torch_threads", "cpu_capability")
_OF_RAY = "/ray/_private/workers/default_worker.py"
_OF_POOLS = ("multiprocessing.pool.worker", "concurrent.futures.process._process_worker")
_OF_ELASTIC_LAUNCH = "torch.distributed.elastic.multiprocessing.api._wrap"
_OF_A_RESTORE = ("socket", "inject", "executable")


_Process = Annotated[list[Count], at_most(2)]  # PID and start in clock ticks since boot


class RankJson(TypedDict, total=False):
    """Everything is checked where it is there; what somebody cannot do without is asked for with `required`."""

    rank: Annotated[int, between(0, MAX_RANKS - 1)]
    world_size: Annotated[int, between(0, MAX_RANKS)]
    cwd: AbsolutePath
    argv: Annotated[list[Word], at_most(_MOST_WORDS)]
    orig_argv: Annotated[list[Annotated[Word, is_argument]], at_most(_MOST_WORDS)]
    environment: Annotated[dict[Word, Word], few, is_environment]  # that it was started with
    # those that the program set itself later; of a capsule: empty, so that the environment is that of the start
    variables_set: Annotated[dict[Word, Word], few, is_environment]
    versions: Annotated[dict[str, str], at_most(MAX_FACTS)]
    hardware: Annotated[dict[str, Any], at_most(MAX_FACTS)]
    pid: Annotated[int, between(0, MAX_PID)]
    pid_namespace: Count
    boot_id: Word
    time_namespace: Count
    node: Word  # of a job with several supervisors: whose rank it is
    started_ticks: Count
    started_ns: Count
    agent: _Process  # of torchrun, which starts the rank and restarts it
    worker: _Process  # what the agent started: the rank, or what runs it
    uid: Annotated[int, between(0, MAX_UID)]
    executable: AnyPath  # empty where Python does not know it
    prefix: AnyPath
    base_prefix: AnyPath
    sys_path: Annotated[list[Word], few]
    socket: AnyPath
    inject: AnyPath
    torch_threads: Annotated[int, between(0, MAX_THREADS)]
    cpu_capability: Word
    memory_cap: Count
    withheld: Word  # what multiprocessing gave the rank that no replay can be given
    # of a forked rank: by which forks of multiprocessing it came from the program's start; empty: by others
    forked: Annotated[list[Word], few]
    emulation: Annotated[dict[str, Any], at_most(MAX_FACTS)]
    seeds: Annotated[dict[str, Any], at_most(MAX_FACTS), is_seeds]
    clock_reads: Annotated[list[Any], at_most(MOST_EARLY), are_reads]  # from before there was a log
    # of a capsule
    peak_bytes: Annotated[int, between(0, MAX_PEAK_BYTES)]
    changed: Annotated[list[AbsolutePath], few]
    gone: Annotated[list[AbsolutePath], few]
    redacted: Annotated[list[Word], few, make_a_variable]
    redacted_arguments: Annotated[list[Word], few]
    past_records: Count
    in_flight: Annotated[list[Count], few]
    folders: Annotated[list[AbsolutePath], few, are_few_folders]
    # names of files that it did not read, in folders that it listed
    listed: Annotated[list[AbsolutePath], at_most(MAX_LISTED_NAMES)]
    absent: Annotated[list[AbsolutePath], few]
    # names on the ways to its files that were links, and where each led in the end
    links: Annotated[dict[AbsolutePath, AbsolutePath], few]
    died_with: Count | None  # exit code of a rank that died without a word; 128 and the number for a signal


def read_rank(path: Path) -> RankJson:
    """`CapsuleError` where it is missing or anything in it is not what it must be."""
    rank = checked_json.checked(RankJson, checked_json.read(path).value, str(path))
    if rank.get("rank", 0) >= rank.get("world_size", MAX_RANKS):
        raise CapsuleError(f"{path}: rank is {rank['rank']} in a job of {rank['world_size']}", hint=_ALTERED)
    return required(rank, "cwd", "argv", "environment")


def variables_of(rank: Mapping[str, Any]) -> dict[str, str]:
    """Of a rank of a run: those that it was started with, and those that its program set itself before the rank began
    to communicate."""
    return {**rank.get("environment", {}), **rank.get("variables_set", {})}


def startable(rank: RankJson, where: str) -> RankJson:
    """`rank` itself where a program can be started with its arguments and its environment, else `CapsuleError`."""
    if "orig_argv" in rank and not rank["orig_argv"]:
        raise CapsuleError(f"{where}: orig_argv is empty: no program to start", hint=_ALTERED)
    if problem := unfit(rank.get("executable", "/")):
        raise CapsuleError(f"{where}: executable {problem}", hint=_ALTERED)
    checked_json.checked(RankJson, rank, where)
    if (size := start_bytes(rank.get("orig_argv", ()), rank["environment"])) > MAX_START_BYTES:
        raise CapsuleError(
            f"{where}: orig_argv and environment have {size:,} bytes together; the limit is {MAX_START_BYTES:,}",
            hint=_ALTERED,
        )
    return rank


def startable_again(rank: RankJson, *, starts_program: bool) -> RankJson:
    """`rank` itself where it has what a replay starts from, else `CapsuleError`; `starts_program`: by its origin."""
    return required(rank, *(_OF_A_START if starts_program else _OF_A_RESTORE))


def required(rank: RankJson, *names: str) -> RankJson:
    """`rank` itself where it has the fields without which it cannot be run again, else `CapsuleError`."""
    for name in names:
        if name not in rank:
            raise CapsuleError(
                f"rank.json: {name} is missing", hint="capture the rank again: the capsule is incomplete"
            )
    return rank


def given_through_a_pipe(rank: Mapping[str, Any], *, is_kept: bool = False) -> str:
    """What the rank ran that its command does not name; empty where a start of the command starts the rank. `is_kept`:
    there is what multiprocessing gave the rank."""
    words, argv = rank.get("orig_argv", ()), rank.get("argv", ())
    if lack := rank.get("withheld"):
        return f"multiprocessing (torch.multiprocessing.spawn, for example) started the rank with {lack}"
    if is_kept and is_spawned(words):
        return ""
    if any(word.startswith("from multiprocessing.") for word in words):
        return "multiprocessing (torch.multiprocessing.spawn, for example) started the rank and gave it its function"
    if any(word.endswith(_OF_RAY) for word in words):
        return "Ray started the rank and gave it its function"
    has_none = len(words) == 1 or "-" in words
    if has_none and argv[:1] in ([""], ["-"]):
        return "the rank read its program from standard input"
    if rank.get("forked") == []:
        return "the program forked the rank (os.fork) and gave it its own state"
    if any(step.endswith(_OF_POOLS) for step in rank.get("forked", ())):
        return "a pool of processes forked the rank and gave it its function through a pipe"
    is_elastic = any(step.endswith(_OF_ELASTIC_LAUNCH) for step in rank.get("forked", ()))
    return "torch's elastic_launch forked the rank after a rendezvous" if is_elastic else ""
