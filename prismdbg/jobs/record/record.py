"""`prismdbg record`: starts the job with the recorder injected and stays as its supervisor on this node."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.capsule.secrets import own_rules
from prismdbg.errors import PrismError, UsageError
from prismdbg.jobs.capture.agent_sockets import keep_for, make_socket_dir
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.injection import cache_dir, job_environment, make_inject_folder
from prismdbg.jobs.record.log_retention import PINNED
from prismdbg.jobs.record.nodes import local_storage
from prismdbg.jobs.record.nodes.membership import Member, enter, goes_on
from prismdbg.jobs.record.nodes.same_command import may_be_of_same_job
from prismdbg.jobs.record.nodes.shared_job import SharedJob, lone_job, processes_without_id, shared_job
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.job_nodes import NodeFolder, node_states
from prismdbg.jobs.storage.ranks_alive import process_with
from prismdbg.jobs.storage.run_folder import RunFolder, cannot_be_made, describe_run, write_json
from prismdbg.jobs.storage.run_report import report, report_of_node
from prismdbg.model import user_code
from prismdbg.model.sizes import size
from prismdbg.settings.process_identity import this_process
from prismdbg.settings.rank_config import RANK_MEMORY, Mode, RankConfig
from prismdbg.settings.state_folders import ALL_SMALL_BYTES, KEPT

NOT_STARTED = 127  # as a shell says it
STATES_AT_ONCE = KEPT + 1  # one is written before the oldest goes


# Of glibc (mallopt(3), M_PERTURB): memory is filled with the complement of this byte when it is allocated.
_ZEROED = {"MALLOC_PERTURB_": "255"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """`window_steps`: 0 none, -1 everything. `state_every`: steps, 0 never. `job_id`: of a
    job of several supervisors, where its launcher does not tell it. `local`: as `local_storage.chosen` takes it."""

    output: Path
    command: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    window_steps: int = 0
    window_bytes: int = 4 << 30
    state_every: int = 0
    sketches: bool = False
    native: bool = True
    memory: bool = False
    memory_cap: int = 0
    zero_memory: bool = False
    job_id: str = ""
    local: str = ""
    policy: Policy

    @property
    def keeps_received(self) -> bool:
        """Also what follows a checkpoint or a state snapshot, which a replay from there needs."""
        return bool(self.window_steps or self.state_every or self.policy.checkpoint_every)

    @property
    def most_bytes(self) -> int:
        """Of one rank, without checkpoints and capsules; 0 where nothing bounds it."""
        if not self.policy.log_bytes or (self.keeps_received and not self.window_bytes):
            return 0
        is_pinned = self.state_every or self.policy.checkpoint_every
        log_bytes = self.policy.log_bytes * (PINNED if is_pinned else 1)
        return log_bytes + (self.window_bytes if self.keeps_received else 0)

    @property
    def prologue(self) -> str:
        """How much of what a rank receives before its restore point is kept for state snapshots."""
        if not self.window_bytes:
            return "all received data"
        return f"up to {size(self.window_bytes + ALL_SMALL_BYTES)} per rank"


def record(request: RecordRequest, say: Say) -> int:
    """Runs the job to its end; its exit code is the answer."""
    shared = _shared(request)
    if shared is not None:
        return _record_among_others(request, shared, if_possible(say))
    was_there = request.output.exists()
    run = prepare(request)
    with local_storage.kept_if_local(run.path):
        return _record_alone(request, run, was_there, say)


def _record_alone(request: RecordRequest, run: RunFolder, was_there: bool, say: Say) -> int:
    environment = _environment(request, run.inject, run.config)
    sockets = RankConfig.load(run.config).socket_dir
    keep_for(run.config, Path(sockets))
    try:
        job = subprocess.Popen(request.command, env=environment)
    except OSError as error:
        shutil.rmtree(sockets, ignore_errors=True)
        _take_back(run, was_there)
        raise _not_started(request.command[0], str(error.strerror or error)) from error
    say = if_possible(say)
    try:
        say(f"recording into {request.output}")
        return Supervisor(run, request.policy, job, say).watch(lambda: _finish(run, request.output, say))
    except (KeyboardInterrupt, SystemExit):  # before signals were passed on
        job.terminate()
        job.wait()
        raise
    finally:
        _remove_sockets(Path(sockets), run.config)


def _remove_sockets(sockets: Path, config: Path) -> None:
    """Not while a process of the job runs: a rank is asked there, and tells those that it starts what it is. A later
    command removes what is left (`remove_dead_sockets`)."""
    if process_with(config) is None:
        shutil.rmtree(sockets, ignore_errors=True)


def home_of(request: RecordRequest) -> Path | None:
    """The folder of this node in which the ranks get theirs; None where they write into RUN."""
    shared = _shared(request)
    if shared is None or (shared.supervisors == 1 and not request.local):
        return None
    has_states = request.state_every > 0
    return local_storage.chosen(request.local, request.output.resolve(), os.environ, has_states=has_states)


def _shared(request: RecordRequest) -> SharedJob | None:
    """None where the supervisor is the only one of its job and RUN is its own."""
    if (shared := shared_job(request.command, os.environ, request.job_id)) is not None:
        return shared
    lone = lone_job(os.environ)
    if request.local not in ("", local_storage.NONE):  # RUN is shared with those who read it
        return lone or SharedJob(id=f"alone {secrets.token_hex(8)}", supervisors=1)
    return lone if lone is not None and goes_on(RunFolder(request.output.resolve()), lone) else None


def _record_among_others(request: RecordRequest, shared: SharedJob, say: Say) -> int:
    """One of several supervisors of the job. RUN is the others', too: what cannot be started leaves it as it is."""
    if shutil.which(request.command[0]) is None:
        raise _not_started(request.command[0], "No such file or directory")
    below = home_of(request)
    sockets, config = make_socket_dir(), Path()
    try:
        with enter(request.output, shared, say) as member, contextlib.ExitStack() as held:
            held.enter_context(local_storage.kept_if_local(member.run.path))
            if below is not None:
                run = local_storage.made(below, member.run, member.node)
                held.enter_context(local_storage.kept(run.home))
                member = replace(member, run=run)
            config = member.node.config
            environment = _environment_among_others(request, member, sockets)
            try:
                job = subprocess.Popen(request.command, env=environment)
            except OSError as error:
                write_json(member.node.supervisor_json, {"exit_code": NOT_STARTED})
                raise _not_started(request.command[0], str(error.strerror or error)) from error
            return _watch_among_others(request, member, job, say)
    finally:
        _remove_sockets(sockets, config)


def _environment_among_others(request: RecordRequest, member: Member, sockets: Path) -> dict[str, str]:
    """The job's. Its ranks are told what the first supervisor was, but for what is this node's own."""
    run, node = member.run, member.node
    try:
        shared = RunFolder(run.path)
        for folder in (shared.decisions, shared.requests):  # before others ask a file server for them
            folder.mkdir(mode=0o700, exist_ok=True)
        if member.made:
            shared.ranks.mkdir(exist_ok=True)  # a start may have been killed while it made RUN
            _fill(shared, request, str(sockets))
        config = RankConfig.load(run.config)
        own = replace(
            config,
            run=str(run.path),
            local=str(run.local or ""),
            socket_dir=str(sockets),
            cache_dir=str(cache_dir()),
            node=node.name,
            first_attempt=member.first_attempt,
            log_bytes=request.policy.log_bytes,
            supervisor=this_process(),
        )
        own.save(node.config)
        keep_for(node.config, sockets)
    except OSError as error:
        raise cannot_be_made(request.output, error) from error
    return _environment(request, run.inject, node.config)


def _environment(request: RecordRequest, inject: Path, config: Path) -> dict[str, str]:
    """The job's. It is in every capsule, so a replay gets memory as its rank got it."""
    made = job_environment(inject, config, os.environ, is_replayed_from_start=_is_replayed_from_start(request))
    return {**made, **(_ZEROED if request.zero_memory else {})}


def _watch_among_others(request: RecordRequest, member: Member, job: subprocess.Popen[bytes], say: Say) -> int:
    try:
        others = "" if member.made else ", which another supervisor has made"
        say(f"recording into {request.output}{others}, as node {member.node.name}")
        if member.run.local is not None:
            say(where_ranks_write(request, member.run.local))
        supervisor = Supervisor(member.run, request.policy, job, say, member)
        return supervisor.watch(lambda: _finish(member.run, request.output, say, member.node))
    except (KeyboardInterrupt, SystemExit):  # before signals were passed on
        job.terminate()
        job.wait()
        raise


def where_ranks_write(request: RecordRequest, local: Path) -> str:
    """A line on the folder of this node: how much memory it may take, if it is in memory."""
    states = f"{STATES_AT_ONCE} per rank, and {request.prologue} from before its restore point"
    return local_storage.said(
        local, request.most_bytes, f" besides state snapshots, up to {states}" if request.state_every else ""
    )


def _not_started(first: str, why: str) -> UsageError:
    if first.startswith("-"):  # of ours, mistyped: unknown ones are left to the job
        return UsageError(f"unknown option {first!r}", hint="see `prismdbg record --help`")
    return UsageError(
        f"{first} cannot be started: {why}", hint="give the path of a program after `--`, as in -- python train.py"
    )


def _is_replayed_from_start(request: RecordRequest) -> bool:
    """By a new process, also if a state snapshot is loaded into it."""
    return request.window_steps != 0 or request.state_every > 0


def if_possible(say: Say) -> Say:
    """Whoever reads what is said may be gone, or the disk full that it is written to: no reason to leave the job."""

    def tell(text: str) -> None:
        with contextlib.suppress(OSError):
            say(text)

    return tell


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _finish(run: RunFolder, output: Path, say: Say, node: NodeFolder | None = None) -> None:
    """The job's exit code is the answer, whatever became of the run folder. `node`: of several, which alone is told."""
    try:
        if run.local is None:  # else only what is claimed came into RUN
            _drop_unclaimed_traces(run)
    except (PrismError, OSError) as error:
        say(f"unclaimed traces cannot be removed: {error}")
    try:
        for line in report(output, is_told=True) if node is None else report_of_node(RunFolder(run.path), node, output):
            say(line)
    except (PrismError, OSError) as error:
        say(str(error))


def _drop_unclaimed_traces(run: RunFolder) -> None:
    """Launchers and workers were traced, too, until they turned out to be no ranks."""
    if any(state.silent_s is not None for state in node_states(run)):
        return  # what is unclaimed may be of another node, where ranks begin
    claimed = {(folder / RANK_MEMORY).resolve() for folder in run.rank_folders()}
    for trace in (run.path / RANK_MEMORY).glob("*"):
        if trace not in claimed:
            shutil.rmtree(trace, ignore_errors=True)


def prepare(request: RecordRequest) -> RunFolder:
    """Makes the run folder. `UsageError` where one is there already: nothing recorded is ever overwritten; and where
    it cannot be written, in a full file system say: then nothing of it is left."""
    was_there = request.output.exists()
    run = _new(request.output, request.command)
    sockets = make_socket_dir()
    try:
        _fill(run, request, str(sockets))
    except OSError as error:
        shutil.rmtree(sockets, ignore_errors=True)
        _take_back(run, was_there)
        raise cannot_be_made(request.output, error) from error
    return run


def _new(output: Path, command: Sequence[str]) -> RunFolder:
    try:
        return RunFolder.new(output)
    except UsageError as error:
        if (processes := processes_without_id(os.environ)) < 2:
            if may_be_of_same_job(RunFolder(output), command):
                error.hint += (
                    "; if this is one of several nodes of that job, give all of them the same --job-id ID and a new RUN"
                )
            raise
        raise UsageError(
            f"{error}; this is one of {processes} processes that an MPI launcher has started",
            hint="choose a new folder, and give all of them the same --job-id ID to record them into it together",
        ) from error


def _take_back(run: RunFolder, was_there: bool) -> None:
    """What nothing was recorded into. A folder that was there stays: the user's own, maybe a volume."""
    _empty(run.path)
    if not was_there:
        run.path.rmdir()


def _fill(run: RunFolder, request: RecordRequest, sockets: str) -> None:
    make_inject_folder(run.inject)
    secret_names, secret_values = own_rules.as_texts()
    config = RankConfig(
        mode=Mode.RECORD,
        socket_dir=sockets,
        run=str(run.path),
        cache_dir=str(cache_dir()),
        ranks=request.ranks,
        window_steps=request.window_steps,
        window_bytes=request.window_bytes,
        log_bytes=request.policy.log_bytes,
        supervisor=this_process(),
        checkpoint_every=request.policy.checkpoint_every,
        state_every=request.state_every,
        sketches=request.sketches,
        nan_check="nan" in request.policy.triggers,  # it looks at every value: not where nobody asks
        native=request.native,
        memory=request.memory,
        memory_cap=request.memory_cap,
        user_code=user_code.paths(),
        secret_names=secret_names,
        secret_values=secret_values,
    )
    config.save(run.config)
    lone = lone_job(os.environ)
    describe_run(
        run,
        request.command,
        {
            "job": lone.id if lone is not None else "",
            "restart": lone.restart if lone is not None else 0,
            "window_steps": request.window_steps,
            "window_bytes": request.window_bytes,
            "checkpoint_every": request.policy.checkpoint_every,
            "state_every": request.state_every,
            "triggers": dict(request.policy.triggers),
        },
    )
