"""One emulated rank: its process, its turns, and whether what it left is worth anything."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

import psutil

from prismdbg.capsule.log.events import RankLog
from prismdbg.diagnosis.wording import rank_list
from prismdbg.emulate.rank_output import RankOutput
from prismdbg.emulate.rank_scheduler import Ended, Event, Kept, MissingValue
from prismdbg.emulate.rank_standing import NEVER_NS, raised_at_ns, standing_of
from prismdbg.errors import CapsuleError, RankLost, UsageError, WaitTimeout
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.injection import job_environment
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.log.rank_log import read_log
from prismdbg.model.meanwhile import Tell, unheard, working
from prismdbg.model.plurals import counted
from prismdbg.settings import seeds
from prismdbg.settings.emulation import RANK_PROCESS
from prismdbg.settings.rank_config import RANK_MEMORY, RankConfig

END_BOUND_S = 10.0
LINE_BYTES = 1 << 16
TELL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What every rank runs. `per_node`: ranks on one node, for LOCAL_RANK. bound_s: how long one turn may take.

    output: of a rank, made when it starts.
    """

    run: RunFolder
    command: tuple[str, ...]
    world: int
    per_node: int
    steps: int
    bound_s: float
    output: Callable[[int], RankOutput]
    say: Say


class EmulatedRank:
    """A process that was started, stands or runs, and is ended by `close` at the latest."""

    def __init__(self, program: Program, rank: int) -> None:
        self._program = program
        self.rank = rank
        self.wall_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._output = program.output(rank)
        self._go_fd = self._hear_fd = self._end_fd = -1
        self._heard = b""
        self._has_turn = self._is_judged = False

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def own_bytes(self) -> int:
        """Memory that no other process shares, now; 0 where that cannot be looked at."""
        if self._process is None:
            return 0
        try:
            root = psutil.Process(self._process.pid)
            return sum(process.memory_full_info().uss for process in (root, *root.children(recursive=True)))
        except psutil.Error:
            return 0

    def turn(self, config: RankConfig, until: str) -> Event:
        """Starts it, or lets it go on, until it has sent that value, lacks one, or ends."""
        began = time.monotonic()
        self.give_turn(config, until)
        try:
            with working() as tell:
                found = first_event([self], began + self._program.bound_s, tell)
        finally:
            self.wall_s += time.monotonic() - began
        if found is None:
            self._say_output()
            raise WaitTimeout(
                f"waited {self._program.bound_s:g} s for rank {self.rank}'s program",
                hint="give --steps, or a longer --timeout",
            )
        return found[1]

    def give_turn(self, config: RankConfig, until: str) -> None:
        """Does not wait: `first_event` does."""
        if self._process is None:
            self._start(config)
        else:
            with contextlib.suppress(BrokenPipeError):  # it was killed while it stood: its end is its next event
                os.write(self._go_fd, json.dumps({"until": until}).encode() + b"\n")
        self._has_turn = True

    def let_go(self) -> None:
        """Begins to end it: one that stands reads the end of its pipe, one that has its turn does not listen."""
        for descriptor in (self._go_fd, self._hear_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._go_fd = self._hear_fd = -1
        if self._process is not None and self._has_turn:
            self._process.terminate()
        self._has_turn = False

    def close(self) -> None:
        """A rank that did not come to its end is ended, and what it left removed: half a program is no picture of the
        job. One that came to a bad end keeps its log: it can be looked into."""
        self.let_go()
        process, self._process = self._process, None
        if process is not None and not self._is_judged:
            _end(process)
        self._output.finish()
        if self._end_fd >= 0:
            os.close(self._end_fd)
        self._end_fd = -1
        if process is None or self._is_judged:
            return
        for folder in self._folders():
            shutil.rmtree(folder)

    def _start(self, config: RankConfig) -> None:
        ask_fd, self._go_fd = os.pipe()
        self._hear_fd, say_fd = os.pipe()
        emulation = {**config.extra["emulation"], "ask_fd": ask_fd, "say_fd": say_fd}
        path = self._program.run.path / f"config.{self.rank}.json"
        replace(config, extra={"emulation": emulation}, seeds=seeds.of_number(self.rank)).save(path)
        environment = {
            seeds.WANTED: "1",  # a program that seeds nothing does the same each time
            **one_thread(self._program.per_node),
            **job_environment(self._program.run.inject, path, os.environ),
            **rank_environment(self.rank, self._program.world, self._program.per_node),
        }
        environment.pop(RANK_PROCESS, None)  # of a rank that starts an emulation itself
        try:
            self._process = subprocess.Popen(
                self._program.command,
                env=environment,
                pass_fds=(ask_fd, say_fd),
                stdout=self._output.stdout,
                stderr=self._output.stderr,
            )
        except OSError as error:
            first = self._program.command[0]
            hint = "check that it is executable; start a script with its interpreter: -- python train.py"
            if isinstance(error, FileNotFoundError):
                hint = "give its path, or write: -- python train.py"
            raise UsageError(f"{first} cannot be started: {error.strerror or error}", hint=hint) from error
        finally:
            os.close(ask_fd)
            os.close(say_fd)
        self._end_fd = os.pidfd_open(self._process.pid)  # now: of a process that was waited for there is none
        self._output.follow(self._end_fd)

    @property
    def hear_fd(self) -> int:
        return self._hear_fd

    def open_end(self) -> int:
        """A descriptor that can be read once the process has ended."""
        return os.dup(self._end_fd)

    def event(self) -> Event | None:
        """What it has said, as far as that is a whole line; its end, if that is all there is."""
        assert self._process is not None
        if select.select([self._hear_fd], [], [], 0)[0] and (said := self._hear()) is not None:
            self._has_turn = False
            return said
        if self._process.poll() is None:
            return None
        self._has_turn = False
        self._check_end(self._process.returncode)
        return Ended()

    @property
    def failed_at(self) -> tuple[bool, int]:
        """For the order of ranks that have failed: those that were killed, then by when their programs raised."""
        code = self._process.poll() if self._process is not None else None
        return not (code or 0) < 0, min(
            (raised_at_ns(f) for f in self._folders()), default=NEVER_NS
        ) if code else NEVER_NS

    @property
    def standing(self) -> str:
        """Where it is, for a rank that does not come to its end."""
        folders = self._folders()
        return standing_of(folders[-1]) if folders else "has not issued a call yet"

    def _hear(self) -> Event | None:
        self._heard += os.read(self._hear_fd, LINE_BYTES)
        line, newline, rest = self._heard.partition(b"\n")
        if not newline:
            return None
        self._heard = rest
        said = json.loads(line)
        if said["event"] == "refused":
            raise UsageError(said["text"], hint=said["hint"])
        return Kept(said["key"]) if said["event"] == "kept" else MissingValue.from_json(said)

    def _folders(self) -> list[Path]:
        return [folder for folder in self._program.run.rank_folders() if rank_of(folder) == self.rank]

    def _check_end(self, code: int) -> None:
        """A program that failed, ended early or did nothing is an error: its log is no picture of the job."""
        self._is_judged = True
        self._output.finish()
        try:
            self._require_whole(code, self._folders())
        except RankLost:
            self._say_output()
            raise

    def _say_output(self) -> None:
        if lines := self._output.last_lines():
            self._program.say(f"the last lines that rank {self.rank} printed:")
            for line in lines.splitlines():
                self._program.say(line)

    @property
    def _see_output(self) -> str:
        return self._output.advice(stays=bool(self._program.run.rank_folders()))

    def _require_whole(self, code: int, folders: Sequence[Path]) -> None:
        wanted = self._program.steps
        if not folders:
            raise RankLost(
                f"rank {self.rank}'s program {how_it_ended(code)} before it issued a collective or a step",
                hint=self._see_output
                if code
                else f"check that it calls torch.distributed.init_process_group; {self._see_output}",
            )
        try:
            log = read_log(folders[-1])
        except CapsuleError as error:
            for folder in folders:
                shutil.rmtree(folder)
            raise RankLost(
                f"rank {self.rank}'s program {how_it_ended(code)}, and it left no log: {error}",
                hint=f"{self._see_output}: it says why the rank was not recorded (a full disk, for example)",
            ) from error
        if lost := next((str(note.data.get("text", "")) for note in log.notes if note.kind == "lost"), ""):
            raise RankLost(
                f"rank {self.rank} was recorded only partly: {lost}",
                hint=f"run prismdbg status {quote(str(self._program.run.path))}",
            )
        reached = log.steps[-1].step if log.steps else 0
        if code:
            raise self._failure(log, folders, f"{how_it_ended(code)} in step {reached}")
        if wanted and reached < wanted:
            counted_by_it = "call prismdbg.step(n) at the top of its loop if it takes no optimizer step"
            shorter = f"give --steps {reached}" if reached else counted_by_it
            raise RankLost(
                f"rank {self.rank}'s program ended after {reached} of {counted(wanted, 'step')}",
                hint=f"{shorter}, or let the program run longer",
            )

    def _failure(self, log: RankLog, folders: Sequence[Path], how: str) -> RankLost:
        """What there is to look at stays; a log without a call is nothing."""
        raised = next((f": {n.data['type']}: {n.data['text']}" for n in log.notes if n.kind == "incident"), "")
        look = f"{quote(str(self._program.run.path))} --rank {self.rank}"
        more = ""
        if log.collectives:
            more = f"; step through it: prismdbg debug {look}"
        elif (folders[-1] / RANK_MEMORY).exists():
            more = f"; show its memory: prismdbg memory {look}"
        else:
            for folder in folders:
                shutil.rmtree(folder)
        return RankLost(f"rank {self.rank}'s program {how}{raised}", hint=f"{self._see_output}{more}")


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_BOUND_S)
    finally:  # whoever interrupts again leaves no process behind
        process.kill()
        process.wait(END_BOUND_S)


def first_event(
    ranks: Sequence[EmulatedRank], deadline: float, tell: Tell = unheard
) -> tuple[EmulatedRank, Event] | None:
    """Of any of them; None where nothing happens until then. A rank that was killed comes before those that miss it."""
    numbers = rank_list([rank.rank for rank in ranks])
    with contextlib.ExitStack() as opened:
        by_fd: dict[int, EmulatedRank] = {}
        for rank in ranks:
            end = rank.open_end()
            opened.callback(os.close, end)
            by_fd |= {rank.hear_fd: rank, end: rank}
        while True:
            tell(f"running {numbers}")
            left_s = max(deadline - time.monotonic(), 0.0)
            ready = select.select(list(by_fd), [], [], min(left_s, TELL_S))[0]
            if not ready and left_s <= TELL_S:
                return None
            said = list({by_fd[descriptor].rank: by_fd[descriptor] for descriptor in ready}.values())
            for rank in said if len(said) == 1 else sorted(said, key=lambda each: each.failed_at):
                if (event := rank.event()) is not None:
                    return rank, event


def how_it_ended(code: int) -> str:
    """Of a process, as its parent is told."""
    if code >= 0:
        return f"failed with code {code}" if code else "ended with code 0"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"


def one_thread(per_node: int) -> Mapping[str, str]:
    """What torchrun sets where a user sets nothing and a node has several ranks."""
    return {"OMP_NUM_THREADS": "1"} if per_node > 1 else {}


def rank_environment(rank: int, world: int, per_node: int) -> Mapping[str, str]:
    """What torchrun would set for this rank."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_RANK": str(rank // per_node),
        "GROUP_WORLD_SIZE": str(-(-world // per_node)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "emulated",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }
