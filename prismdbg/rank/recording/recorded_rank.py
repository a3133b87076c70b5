"""A recorded rank: opens its log when it first has something to say, names groups, says notes, and fails open.

Which process is a rank shows at its first collective or optimizer step: launchers, DataLoader workers and other
children inherit the environment and never get that far.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import prismdbg
from prismdbg.capsule import json_text
from prismdbg.capsule.limits import MAX_STRING_BYTES
from prismdbg.capsule.log.clock_reads import At, Read
from prismdbg.capsule.log.format import Kind, StepSource
from prismdbg.rank.c10d import worlds
from prismdbg.rank.program import clocks, process_runs
from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.isolation import is_quiet
from prismdbg.rank.program.not_compiled import not_compiled
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording import process_tree, state_hash
from prismdbg.rank.recording.inputs import clock_reads, seeds, spawned, started_in, tracker_runs
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
from prismdbg.rank.recording.inputs.outcomes import Outcomes
from prismdbg.rank.recording.own_process import own_start_ticks
from prismdbg.rank.recording.recorder import Recorder
from prismdbg.rank.recording.scaler_notes import ScalerNotes
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.rank.tracing import tracer
from prismdbg.rank.tracing.from_start import MemoryFromStart
from prismdbg.settings import trackers
from prismdbg.settings.boot import boot_id, time_namespace
from prismdbg.settings.file_system import bounded, is_local
from prismdbg.settings.rank_config import ENVIRONMENT_NAME, Mode, RankConfig
from prismdbg.settings.state_folders import ALL_SMALL_BYTES, SMALL_BYTES

Serve = Callable[["Recording", Path], None]
_NOW_NS = time.monotonic_ns


class Recording:
    """Owns one rank's recorder. Every method may be called at any time; none raises into the program but what is for it
    (`interruptions`)."""

    def __init__(self, config: RankConfig, recorder: Recorder, kind: str, serve: Serve) -> None:
        """`serve`: starts what answers at a socket, once there is a log."""
        self.config = config
        self.recorder = recorder
        self.kind = kind
        self._serve = serve
        self.rank = -1
        self.name = ""
        self.folder: Path | None = None
        self.pid = os.getpid()
        self.lost = ""
        self.ended = False
        self.is_child = False
        self.now_ns: Callable[[], int] = _NOW_NS
        self.hash_at: set[int] = set()
        self.opened_files = OpenedFiles(config.home, config.run, told_in=config.socket_dir)
        self.outcomes = Outcomes()
        self.clock_reads = clock_reads.READS
        self.memory = MemoryFromStart(config, own_start_ticks()) if config.memory else None
        self._opening = False
        self._publishing = threading.Lock()  # either the log is open, or the program goes on without

    @property
    def is_open(self) -> bool:
        return self.folder is not None and self.pid == os.getpid()

    def ensure_open(self) -> bool:
        """Opens the log once. False in a process that is not a rank, is not asked for, or cannot be recorded."""
        if self.folder is not None or self.lost or self._opening:
            return self.is_open
        self._opening = True
        try:
            direct = is_local(Path(self.config.home))
            if direct and is_local(Path(self.config.run)):
                self._open(direct)
            else:
                bounded(partial(self._open, direct))
        except Exception as error:
            with self._publishing:
                self.give_up(f"the log could not be opened: {error}", is_said=True)
            if is_for_the_program(error):
                raise
        finally:
            self._opening = False
        return self.is_open

    def _open(self, direct: bool) -> None:
        """`direct`: the log's file system is one of this machine's."""
        self.pid = os.getpid()
        self.rank = _rank_number()
        config = self.config
        if config.mode is Mode.RECORD and not self._is_marked():
            return
        if config.ranks and self.rank not in config.ranks:
            self._stay_out("not selected")
            return
        claimed = _claim_folder(Path(config.run) / "ranks", self.rank, config.first_attempt)
        folder = claimed
        if config.local:  # the name is the job's, the log is this node's
            folder = Path(config.local) / "ranks" / claimed.name
            try:
                folder.mkdir(mode=0o700)  # where it is gone, nobody brings into RUN what is written there
            except OSError:
                claimed.rmdir()  # it hides no log of an earlier attempt
                raise
        self.recorder.open(
            str(folder),
            self.rank,
            config.event_segment_bytes,
            config.payload_segment_bytes,
            config.stacks,
            config.fingerprints,
            config.nan_check,
            config.sketches,
            direct,
        )
        with self._publishing:
            in_time = not self.lost
            if in_time:
                self.folder, self.name = folder, folder.name
        if not in_time:  # the program went on without: a log that ends here would be a death's
            for made in {folder, claimed}:
                shutil.rmtree(made, ignore_errors=True)
            return
        self.window(*config.payload_window)
        if config.checkpoint_every or config.state_every:  # payloads since the older of two; later it is said which
            self.recorder.keep_from(0)
        if config.state_every:  # what is small until the restore point
            self.recorder.keep_small(SMALL_BYTES, ALL_SMALL_BYTES)
        socket_path = Path(config.socket_dir) / f"{folder.name}.sock"
        described = {**describe_process(self.rank, socket_path, self.kind), **self._told(folder)}
        for place in dict.fromkeys((folder, claimed)):  # others know a rank by what is in RUN
            _write_json(place / "rank.json", {**described, "inject": str(Path(config.run) / "inject")})
        self.note("begin", recorder=self.kind)
        if self.memory is not None:
            self.note("memory", **self.memory.claim(folder))
        self._listen()
        self._serve(self, socket_path)

    def _is_marked(self) -> bool:
        """As a rank, before anything of it can fail; False in a process that a rank has started."""
        world_size = _world_size()
        if (above := process_tree.rank_above(self.config, self.rank, world_size)) is not None:
            self._stay_out("started by a rank")
            if self.rank == 0:  # one line of each job is enough
                say(f"a process that rank {above} started communicates or trains: it is not recorded")
            return False
        process_tree.mark(self.config, self.rank, max(world_size, self.rank + 1))
        return True

    def _stay_out(self, reason: str) -> None:
        self.lost = reason
        self.recorder.mode(0)
        clocks.observe(None)
        tracer.disarm()

    def _told(self, folder: Path) -> dict[str, Any]:
        """What `rank.json` has of some ranks only. From here on what is read from clocks is in the log."""
        config = self.config
        told: dict[str, Any] = {"emulation": config.extra["emulation"]} if "emulation" in config.extra else {}
        told |= {"memory_cap": config.memory_cap} if config.memory_cap else {}
        told |= {"node": config.node} if config.node else {}
        early = self._begin_clock_reads()
        told |= {"clock_reads": early} if config.payload_window[0] and config.mode is Mode.RECORD else {}
        told |= spawned.write(folder)
        if (way := process_runs.forked()) is not None:
            told |= {"forked": way}
        return told

    def _listen(self) -> None:
        """What was seen before there was a log is noted now, what is seen later then."""
        seeds.listen(lambda name, state: self.note("seed", name=name, state=state))
        tracker_runs.listen(lambda values: self.note(trackers.NOTE, run=values))
        COUNTER.listen_to_scaler(ScalerNotes(self.note, self.recorder.stats))
        self.opened_files.listen(self._note_path)
        self.outcomes.listen(self.note)

    def give_up(self, reason: str, *, is_said: bool = False) -> None:
        """Recording ends here; the training goes on. Said once, in the log where there is one, else on stderr.

        is_said: on stderr as well, for the log is one that nobody can read.
        """
        if self.lost:
            return
        self.lost = reason
        clocks.observe(None)
        with contextlib.suppress(Exception):
            self.recorder.mode(0)
        if self.folder is None or is_said:
            say(f"rank {self.rank} is not recorded: {reason}")
        if self.folder is not None:
            self.note("lost", text=reason)

    def note(self, kind: str, **data: Any) -> None:
        """Writes a NOTE; a full disk loses it silently, for there is nowhere to say it."""
        if not self.is_open:
            return
        try:
            body = {"kind": kind, "time_ns": self.now_ns(), "moment": self.moment, **data}
            self.recorder.append(Kind.NOTE, json_text.dump(body).encode())
        except Exception as error:
            if is_for_the_program(error):
                raise

    def window(self, on: bool, steps: int, size_bytes: int) -> None:
        """What a replay is given is kept while `on`: what the rank receives, and what it reads from clocks."""
        self.recorder.window(on, steps, size_bytes)
        if self.config.mode is Mode.RECORD:  # an emulated rank has no times of a job
            clocks.observe(self.clock_reads if on and not self.lost else None)

    def _begin_clock_reads(self) -> list[Read]:
        self.clock_reads.is_quiet = is_quiet
        self.clock_reads.moment = self._at
        return self.clock_reads.begin(self._write_clock_reads)

    def _write_clock_reads(self, record: bytes) -> None:
        if self.is_open and not self.lost:
            self.recorder.append_held(Kind.CLOCK, record)

    def _note_path(self, kind: str, path: str, seen_ns: int) -> None:
        """`seen_ns`: paths from before the log was there are noted later; it says nothing on a virtual clock."""
        real = self.now_ns is _NOW_NS
        self.note(kind, path=path, **({"seen_ns": seen_ns} if real else {}))

    @property
    def moment(self) -> str:
        step, collective = self._at()
        return f"{step}.{collective}"

    def _at(self) -> At:
        return self.recorder.moment()

    @not_compiled
    def on_group(self, group: Any) -> None:
        """Before the first record of a group: opens the log, then says who is in the group."""
        try:
            if self.ensure_open():
                self.recorder.append(Kind.GROUP, json_text.dump(describe_group(group)).encode())
        except Exception as error:
            if is_for_the_program(error):
                raise
            self.give_up(f"a group could not be described: {error}")

    def new_world(self, suffix: str) -> None:
        """All process groups are destroyed. Names of later ones end with `suffix` (`c10d/worlds.py`)."""
        self.recorder.new_world(suffix)
        self._tell(process_tree.mark_without_group)

    def made_world(self) -> None:
        """What this process starts from here on has a rank above it, also if this one is not recorded."""
        self._tell(lambda config: process_tree.mark_with_group(config, _rank_number(), _world_size()))

    def _tell(self, mark: Callable[[RankConfig], None]) -> None:
        try:
            mark(self.config)
        except Exception as error:  # who is below this rank concerns nothing of its own log
            if is_for_the_program(error):
                raise

    def on_step(self, step: int, source: StepSource) -> None:
        try:
            if self.is_open or (self._steps_make_a_rank() and self.ensure_open()):
                try:
                    if step in self.hash_at:
                        self.hash_state()
                finally:  # whatever a signal's handler raises, the program is in that step
                    self.recorder.begin_step(step, int(source))
                if step & (step - 1) == 0:  # ever more rarely: what is read is read early
                    self.opened_files.look()
                else:
                    self.opened_files.hear()
        except Exception as error:
            if is_for_the_program(error):
                raise
            self.give_up(f"a step could not be recorded: {error}")

    def _steps_make_a_rank(self) -> bool:
        """A worker process may train something of its own; it is a rank only if it is in the job's group."""
        started_by_another = self.is_child or multiprocessing.parent_process() is not None
        return not started_by_another or dist.is_initialized()

    def hash_state(self) -> None:
        """Notes the parameters' hash at this moment, so that a replay can be compared with it; or why there is none."""
        optimizer = COUNTER.optimizer() if COUNTER.optimizer is not None else None
        try:
            found = state_hash.of(optimizer) if optimizer is not None else None
        except Exception as error:
            if is_for_the_program(error):
                raise
            self.note("no_hash", step=COUNTER.step, text=repr(error))
            return
        if found is not None:
            self.note("state", hash=found, step=COUNTER.step)

    def end(self, code: int) -> None:
        """The program ends by itself."""
        if self.is_open and not self.ended:
            self.ended = True
            self.opened_files.end()
            with contextlib.suppress(Exception):
                if self.config.state_hash_at_exit and code == 0:
                    self.hash_state()
            if self.memory is not None:
                self.note("memory_end", **self.memory.end())
            self.note("exit", code=code)


def describe_group(group: Any) -> dict[str, Any]:
    """Name, global ranks in group order, description and backend, as far as torch knows them already."""
    ranks = c10d._world.pg_group_ranks.get(group)
    members = list(ranks) if ranks else list(range(group.size()))
    return {
        "name": worlds.name_of(group),
        "ranks": members,
        "desc": group.group_desc or "",
        "backend": _backend_of(group),
    }


def _backend_of(group: Any) -> str:
    """torch calls a group's backend `undefined` if the program named none, as for a device mesh: then what it chose."""
    backend = str(c10d._world.pg_map.get(group, ("", None))[0])
    if backend != "undefined":
        return backend
    config = str(c10d._world.pg_backend_config.get(group, ""))
    return ",".join(sorted({part.rpartition(":")[2] for part in config.split(",")})) or backend


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE") or "1")


def describe_process(rank: int, socket_path: Path, recorder: str) -> dict[str, Any]:
    """What a capsule must know to run this rank again."""
    return {
        "rank": rank,
        "world_size": max(_world_size(), rank + 1),  # a program may name both itself, and later than this
        "pid": os.getpid(),
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        "boot_id": boot_id(),
        "time_namespace": time_namespace(),
        "started_ticks": own_start_ticks(),
        "started_ns": started_ns(),
        **process_tree.launch(process_tree.ancestors()),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "orig_argv": _texts(sys.orig_argv),
        "argv": _texts(sys.argv),
        "cwd": started_in.folder,
        "sys_path": _search_path(),
        "environment": (given := as_given(started_in.environment())),
        "variables_set": {name: value for name, value in as_given(os.environ).items() if given.get(name) != value},
        "socket": str(socket_path),
        "recorder": recorder,
        "torch_threads": torch.get_num_threads(),
        "seeds": seeds.began(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "prismdbg": prismdbg.__version__,
        },
        "hardware": {
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "node": platform.node(),
            "kernel": platform.release(),
        },
        "uid": os.getuid(),
    }


def _texts(words: Iterable[object]) -> list[str]:
    """A program may put anything into its own arguments: sys.argv = ["train.py", "--seed", 5]."""
    return [str(word) for word in words]


def _search_path() -> list[str]:
    """A program may put anything there, too; Python looks at texts alone. A path object is meant to be a folder."""
    entries = [os.fsdecode(entry) for entry in sys.path if isinstance(entry, str | os.PathLike)]
    return [entry for entry in entries if not entry.endswith("/inject")]


def as_given(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment as the program's owner gave it: without what `record` put in."""
    environment = {name: value for name, value in variables.items() if name and _is_given(name, value)}
    environment.pop(process_tree.VARIABLE, None)
    ours = Path(environment.pop(ENVIRONMENT_NAME, "")).parent / "inject"
    entries = [e for e in environment.get("PYTHONPATH", "").split(os.pathsep) if e and Path(e) != ours]
    environment["PYTHONPATH"] = os.pathsep.join(entries)
    if not entries:
        del environment["PYTHONPATH"]
    return environment


def _is_given(name: str, value: str) -> bool:
    """No program is started with a variable that is longer: this one set it itself, and does so in a replay."""
    return len(os.fsencode(name)) + len(os.fsencode(value)) + 2 <= MAX_STRING_BYTES


def started_ns() -> int:
    """This process's start as time since the epoch."""
    since_boot_ns = own_start_ticks() * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - since_boot_ns)


def _rank_number() -> int:
    if dist.is_initialized():
        return int(dist.get_rank())
    return int(os.environ.get("RANK") or "0")  # a script may export what its launcher did not set


def _claim_folder(ranks: Path, rank: int, first_attempt: int = 0) -> Path:
    """`<rank>`, or `<rank>.<n>` for the n-th restart of that rank; mkdir decides between two that ask at once.

    torchrun says which it is: a rank that never got as far as its first collective was restarted all the same.
    first_attempt: of a job that was started again as a whole, where torchrun counts from 0 again.
    """
    ranks.mkdir(parents=True, exist_ok=True)
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    attempt = first_attempt + (int(count) if count.isdecimal() else 0)
    while True:
        folder = ranks / (f"{rank}.{attempt}" if attempt else str(rank))
        try:
            folder.mkdir(mode=0o700)
            return folder
        except FileExistsError:
            attempt += 1


def _write_json(path: Path, data: dict[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json_text.dump(data, indent=1))
    temporary.chmod(0o600)
    temporary.replace(path)
