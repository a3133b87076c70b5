"""Whatever fails in prismdbg, the job ends as it would without it, and what was lost is said once."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from chain import prismdbg
from file_server import FileServer, missing, no_slow_one, served
from jobs import (
    JOB_BOUND_S,
    Ended,
    Job,
    Recorded,
    forked,
    plain_environment,
    prepare_run,
    record,
    record_command,
    remove_sockets,
    run,
    started,
)
from waiting import wait_for

from prismdbg.capsule.log.reader import read_log, read_payload
from prismdbg.errors import CapsuleError
from prismdbg.jobs.injection import job_environment
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.collective import State
from prismdbg.settings.rank_config import RankConfig

pytestmark = pytest.mark.job

PROGRAMS = Path(__file__).parents[1] / "programs"
RANK = "prismdbg.rank"

# what fails, and where it is said: in the log, on stderr where there is none, on both where there is none yet, or
# nowhere as nothing is lost
AROUND_THE_RECORDER = {
    f"{RANK}.recording.recorded_rank:describe_group": "log",
    f"{RANK}.recording.recorded_rank:describe_process": "both",
    f"{RANK}.recording.recorded_rank:_claim_folder": "stderr",
    f"{RANK}.recording.recorded_rank:_rank_number": "stderr",
    f"{RANK}.recording.recorded_rank:state_hash.of": "nowhere",
    f"{RANK}.agent:Agent.__init__": "log",
    f"{RANK}.agent:Agent._accept": "log",
    f"{RANK}.recording_verbs:verbs_of": "log",
    f"{RANK}.recording.inputs.opened_files:OpenedFiles._note": "nowhere",
    f"{RANK}.recording.process_tree:mark_without_group": "nowhere",
}
IN_THE_PYTHON_RECORDER = {
    f"{RANK}.c10d.fingerprint:of": "log",
    f"{RANK}.c10d.fingerprint:as_bytes": "log",
    f"{RANK}.c10d.kernels:is_meta": "both",
    f"{RANK}.c10d.kernels:Call": "both",
    f"{RANK}.recording.python_recorder:python_stack": "log",
    f"{RANK}.recording.python_recorder:wrap": "log",
    f"{RANK}.c10d.completion:Completion.__init__": "log",
    f"{RANK}.c10d.counters:Counters.issue": "log",
    f"{RANK}.c10d.counters:Counters.begin_step": "log",
    f"{RANK}.recording.log_writer:LogWriter.text": "log",
    f"{RANK}.recording.log_writer:PayloadWriter.write": "log",
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ended]:
    """How the faulty program ends when nothing of prismdbg is there."""
    ended = {}

    def made(ending: str) -> Ended:
        if ending not in ended:
            home = tmp_path_factory.mktemp("bare")
            ended[ending] = run(faulty("", home / "met", ending), home / "output.txt")
        return ended[ending]

    return made


def faulty(function: str, met: Path, ending: str = "") -> list[str]:
    return [sys.executable, str(PROGRAMS / "faulty.py"), function, str(met), *filter(None, [ending])]


def said_in_the_log(recorded: Recorded, rank: int = 0) -> list[str]:
    folder = recorded.run.ranks / str(rank)
    if not list(folder.glob("events.*")):
        return []
    return [str(note.data["text"]) for note in read_log(folder).notes if note.kind in ("lost", "no_agent")]


def said_on_stderr(output: str) -> list[str]:
    lines = [line for line in output.splitlines() if line.startswith("prismdbg: ")]
    return [line for line in lines if "Python kernels" not in line]


def assert_unharmed(ended: Ended, bare: Ended) -> None:
    assert ended.code == bare.code, ended.output
    assert ended.lines("result") == bare.lines("result") != []
    assert "Traceback" not in ended.output.replace("Traceback", "", bare.output.count("Traceback")), ended.output


def check(recorded: Recorded, bare: Ended, said: str, words: str) -> None:
    assert_unharmed(recorded.ended, bare)
    assert_said(said_in_the_log(recorded), said_on_stderr(recorded.ended.output), said, words)


def assert_said(in_log: list[str], on_stderr: list[str], said: str, words: str) -> None:
    assert (len(in_log), len(on_stderr)) == {"log": (1, 0), "stderr": (0, 1), "both": (1, 1), "nowhere": (0, 0)}[
        said
    ], (
        in_log,
        on_stderr,
    )
    assert all(words in text for text in in_log + on_stderr)


@dataclass(frozen=True, kw_only=True)
class AllBroken:
    """One job in which each function is broken on a rank of its own, which no other rank notices."""

    recorded: Recorded
    functions: list[str]
    met: Path

    def check(self, function: str, said: str) -> None:
        rank = self.functions.index(function)
        output = Path(f"{self.met}.{rank}.err").read_text()
        assert "Traceback" not in output, output
        assert_said(said_in_the_log(self.recorded, rank), said_on_stderr(output), said, "broken on purpose")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], AllBroken]:
    """By the native recorder or the other one, whose ranks are as many."""
    count = max(len(AROUND_THE_RECORDER), len(IN_THE_PYTHON_RECORDER))

    def several(names: Iterable[str], met: Path) -> list[str]:
        functions = [*names, *[""] * count][:count]
        return forked(PROGRAMS / "faulty.py", ",".join(functions), met, ranks=count)

    @cache
    def bare() -> Ended:
        home = tmp_path_factory.mktemp("bare")
        return run(several([], home / "met"), home / "output.txt")

    @cache
    def made(native: bool) -> AllBroken:
        home = tmp_path_factory.mktemp("broken")
        functions = list(AROUND_THE_RECORDER if native else IN_THE_PYTHON_RECORDER)
        recorded = record(several(functions, home / "met"), home / "run", native=native)
        assert_unharmed(recorded.ended, bare())
        assert len(bare().lines("result")) == count
        return AllBroken(recorded=recorded, functions=functions, met=home / "met")

    return made


@pytest.mark.parametrize("function", AROUND_THE_RECORDER)
def test_a_function_that_raises(function: str, broken: Callable[[bool], AllBroken]) -> None:
    broken(True).check(function, AROUND_THE_RECORDER[function])


@pytest.mark.parametrize("function", IN_THE_PYTHON_RECORDER)
def test_a_function_of_the_python_kernels_that_raises(function: str, broken: Callable[[bool], AllBroken]) -> None:
    broken(False).check(function, IN_THE_PYTHON_RECORDER[function])


@pytest.mark.parametrize("stderr", ["/dev/full", "&-"])
def test_a_stderr_that_takes_nothing(stderr: str, bare: Callable[[str], Ended], tmp_path: Path) -> None:
    """Of what is said there: that the native recorder is missing, when torch is imported, and that the log could not be
    opened, in the first collective."""
    command = faulty(f"{RANK}.recording.recorded_rank:_claim_folder", tmp_path / "met")
    without = ["sh", "-c", f"exec {shlex.join(command)} 2>{stderr}"]
    recorded = record(without, tmp_path / "run", native=True, cache_dir=str(tmp_path / "cache"))
    assert recorded.ended.code == 0, recorded.ended.output
    assert recorded.ended.lines("result") == bare("").lines("result") != []
    assert "prismdbg:" not in recorded.ended.output


def test_what_was_recorded_before_a_failure_is_kept(bare: Callable[[str], Ended], tmp_path: Path) -> None:
    environment = plain_environment(BREAK_AFTER="7")
    command = faulty(f"{RANK}.c10d.fingerprint:of", tmp_path / "met")
    recorded = record(command, tmp_path / "run", native=False, env=environment)
    check(recorded, bare(""), "log", "broken on purpose")
    collectives = recorded.log(0).collectives
    assert [c.record_id for c in collectives] == list(range(len(collectives)))
    assert len(collectives) >= 7
    assert all(c.state is State.COMPLETED for c in collectives[:6])


def test_a_report_that_fails_hides_nothing(bare: Callable[[str], Ended], tmp_path: Path) -> None:
    """The program raises, and so does what should describe it: its own traceback and exit code remain."""
    command = faulty(f"{RANK}.recording.exception_hooks:describe", tmp_path / "met", "raise")
    recorded = record(command, tmp_path / "run", native=False)
    assert bare("raise").code == 1
    assert_unharmed(recorded.ended, bare("raise"))
    assert "ValueError: the program's own" in recorded.ended.output


def test_an_unreadable_configuration(bare: Callable[[str], Ended], tmp_path: Path) -> None:
    folder = prepare_run(tmp_path / "run", native=False)
    remove_sockets(folder)
    folder.config.write_text("{")
    environment = job_environment(folder.inject, folder.config, plain_environment())
    ended = run(faulty("", tmp_path / "met"), tmp_path / "output.txt", env=environment)
    assert_unharmed(ended, bare(""))
    (line,) = said_on_stderr(ended.output)
    assert str(folder.config) in line


@pytest.mark.parametrize("native", [True, False])
def test_a_torch_whose_operators_are_others(bare: Callable[[str], Ended], native: bool, tmp_path: Path) -> None:
    """As a newer torch might have them: the user's sitecustomize takes one out of our table, and asks another one for
    an argument that it does not have. Both pass, which is noted once each; the others are recorded."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text(
        "from dataclasses import replace\n"
        "from prismdbg.model.ops import OPS\n"
        "del OPS['allreduce_']\n"
        "OPS['broadcast_'] = replace(OPS['broadcast_'], tag=3)\n"
    )
    environment = plain_environment(PYTHONPATH=str(theirs))
    recorded = record(faulty("", tmp_path / "met"), tmp_path / "run", native=native, env=environment)
    assert_unharmed(recorded.ended, bare(""))
    said = prismdbg("why", tmp_path / "run")
    assert said.out.count("called c10d::allreduce_, which is not recorded: this version") == len(recorded.ranks)


def test_a_native_recorder_that_cannot_be_loaded(bare: Callable[[str], Ended], tmp_path: Path) -> None:
    from prismdbg.rank.native import build as native_build

    library = native_build._target(tmp_path / "cache", with_cuda=False)
    library.parent.mkdir(parents=True)
    library.write_bytes(b"not a library")
    recorded = record(faulty("", tmp_path / "met"), tmp_path / "run", native=True, cache_dir=str(tmp_path / "cache"))
    check(recorded, bare(""), "nowhere", "")
    (line,) = [line for line in recorded.ended.output.splitlines() if line.startswith("prismdbg: ")]
    assert "Python kernels" in line
    assert "invalid ELF header" in line or "file too short" in line
    assert len(recorded.log(0).collectives) > 12


# the disk


def many(met: Path, count: int, folder: Path | None = None) -> list[str]:
    command = [sys.executable, str(PROGRAMS / "many.py"), str(met), str(count)]
    return [*command, *([str(folder)] if folder else [])]


def result_of(count: int) -> list[str]:
    return [f"result {float(sum(range(count)))}"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("native", [True, False])
def test_no_room_for_a_log(small_disk: Path, native: bool, tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    recorded = record(many(tmp_path / "met", 100), small_disk / "run", native=native, output=output)
    assert (recorded.ended.code, recorded.ended.lines("result")) == (0, result_of(100)), recorded.ended.output
    (line,) = said_on_stderr(recorded.ended.output)
    assert "No space left" in line


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("window_steps", [0, -1])
def test_the_disk_is_full_in_the_middle(small_disk: Path, native: bool, window_steps: int, tmp_path: Path) -> None:
    recorded = record(
        many(tmp_path / "met", 6000),
        small_disk / "run",
        native=native,
        window_steps=window_steps,
        output=tmp_path / "output.txt",
        event_segment_bytes=64 << 10,
        payload_segment_bytes=64 << 10,
    )
    assert (recorded.ended.code, recorded.ended.lines("result")) == (0, result_of(6000)), recorded.ended.output
    assert said_on_stderr(recorded.ended.output) == []
    words = said_in_the_log(recorded)
    assert words
    assert all("No space left" in text for text in words)
    assert len(words) == len(set(words)) <= 2, "payloads and events may end apart, each is said once"
    log = recorded.log(0)
    assert 100 < len(log.collectives) < 6000
    assert [c.record_id for c in log.collectives] == list(range(len(log.collectives)))


@pytest.mark.parametrize("options", [(), ("--python-kernels",)])
def test_somebody_else_fills_the_disk_under_a_mapped_log(
    small_disk: Path, options: tuple[str, ...], tmp_path: Path
) -> None:
    """What is mapped was allocated before: it takes records to its end, and no page of it can be missing."""
    subprocess.run(["mount", "-o", "remount,size=24m", str(small_disk)], check=True)
    with standing(tmp_path, 500, *options, home=small_disk) as (job, folder):
        with (small_disk / "of somebody else").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(64 << 10))
        assert shutil.disk_usage(small_disk).free == 0
        (folder / "go").touch()
        ended = job.wait()
    assert (ended.code, ended.lines("result")) == (0, result_of(500)), ended.output
    log = read_log(small_disk / "run" / "ranks" / "0")
    assert len(log.collectives) == 500 and all(c.state is State.COMPLETED for c in log.collectives)
    assert sum("the supervisor's report cannot be written" in line for line in said_on_stderr(ended.output)) == 1


@pytest.mark.parametrize("native", [True, False])
def test_a_run_folder_that_takes_no_log(native: bool, tmp_path: Path) -> None:
    folder = prepare_run(tmp_path / "run", native=native)
    folder.ranks.rmdir()
    folder.ranks.write_text("in the way")
    environment = job_environment(folder.inject, folder.config, plain_environment())
    ended = run(many(tmp_path / "met", 10), tmp_path / "output.txt", env=environment)
    remove_sockets(folder)
    assert (ended.code, ended.lines("result")) == (0, result_of(10)), ended.output
    assert len(said_on_stderr(ended.output)) == 1, ended.output


@pytest.mark.parametrize("options", [(), ("--python-kernels",)])
@pytest.mark.parametrize("left_bytes", [0, 64, 5000])
def test_a_log_that_is_cut_under_the_job(options: tuple[str, ...], left_bytes: int, tmp_path: Path) -> None:
    """A store into a mapping of that file would be a SIGBUS."""
    with standing(tmp_path, 500, *options) as (job, folder):
        os.truncate(tmp_path / "run" / "ranks" / "0" / "events.00000.seg", left_bytes)
        (folder / "go").touch()
        ended = job.wait()
    assert (ended.code, ended.lines("result")) == (0, result_of(500)), ended.output
    (line,) = [line for line in said_on_stderr(ended.output) if "no longer recorded" in line]
    assert "shorter than it was" in line
    assert "killed from outside" not in ended.output, "its log has no end, but that says nothing of the rank's"


@pytest.fixture
def file_server(tmp_path: Path) -> Iterator[tuple[Path, FileServer]]:
    """A folder on a file system that a process of ours serves, and that process."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path / "served"
    folder.mkdir()
    with served(folder, tmp_path) as server:
        yield folder, server


def test_a_file_system_that_no_longer_answers(file_server: tuple[Path, FileServer], tmp_path: Path) -> None:
    """As NFS when its server is gone: neither a collective nor the end of the program waits for it. Both recorders,
    with and without payloads, side by side: most of the time they wait."""
    home, server = file_server
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(_ready(home / name, tmp_path / name, native=native, window_steps=window_steps))
            for name, native, window_steps in SIDE_BY_SIDE
        ]
        server.stop()
        for name, *_ in SIDE_BY_SIDE:
            (tmp_path / name / "go").touch()
        ended = [job.wait(60) for job, _ in jobs]
        server.process.resume()
    for one, (_, run_folder) in zip(ended, jobs, strict=True):
        assert (one.code, one.lines("result")) == (0, result_of(2000)), one.output
        assert len(read_log(run_folder.ranks / "0").collectives) >= 3


SIDE_BY_SIDE = [
    ("native", True, 0),
    ("native with payloads", True, -1),
    ("python", False, 0),
    ("python with payloads", False, -1),
]


def _logged(run_folder: RunFolder) -> int:
    """How many collectives of rank 0 are in its log; it may not have one yet."""
    try:
        return len(read_log(run_folder.ranks / "0").collectives)
    except CapsuleError:
        return 0


@contextmanager
def _ready(path: Path, signs: Path, *, native: bool, window_steps: int) -> Iterator[tuple[Job, RunFolder]]:
    """A job that is recorded into `path`, once what it has issued is in its log, and it waits for `go` in `signs`."""
    signs.mkdir()
    options: Any = {"event_segment_bytes": 64 << 10, "payload_segment_bytes": 64 << 10, "window_steps": window_steps}
    run_folder = prepare_run(path, native=native, **options)
    environment = job_environment(run_folder.inject, run_folder.config, plain_environment())
    with started(many(signs / "met", 2000, signs), signs / "output.txt", env=environment) as job:
        wait_for(lambda: (signs / "ready").exists() or not job.alive, JOB_BOUND_S, "the job to stand ready")
        wait_for(lambda: _logged(run_folder) == 3, 20, "what came before to be written")
        yield job, run_folder
    remove_sockets(run_folder)


@pytest.mark.parametrize("options", [(), ("--python-kernels",)])
def test_the_supervisor_of_a_run_that_no_longer_answers(
    options: tuple[str, ...], file_server: tuple[Path, FileServer], tmp_path: Path
) -> None:
    """The job's exit code comes back, and it is said what is not written."""
    home, server = file_server
    with standing(tmp_path, 500, "--window", "all", *options, home=home) as (job, folder):
        server.stop()
        (folder / "go").touch()
        ended = job.wait(60)
        server.process.resume()
    assert (ended.code, ended.lines("result")) == (0, result_of(500)), ended.output
    assert sum("does not answer: the end of the job" in line for line in said_on_stderr(ended.output)) == 1, (
        ended.output
    )
    assert not Path(RankConfig.load(home / "run" / "config.json").socket_dir).exists()


def test_a_signal_reaches_the_job_while_its_run_does_not_answer(
    file_server: tuple[Path, FileServer], tmp_path: Path
) -> None:
    home, server = file_server
    with standing(tmp_path, 500, home=home) as (job, _):
        wait_for(lambda: (home / "run" / "supervisor.json").exists(), 20, "the supervisor to watch")
        server.stop()
        wait_for(lambda: _waits_for_a_server(job.process.pid), 20, "the supervisor to wait for the server")
        job.process.terminate()
        ended = job.wait(60)
        server.process.resume()
    assert ended.code == 128 + signal.SIGTERM, ended.output


def _waits_for_a_server(pid: int) -> bool:
    waits = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/wchan")]
    return any("request_wait" in place or "fuse" in place for place in waits)


@pytest.mark.parametrize("native", [True, False])
def test_on_a_file_system_with_a_server_nothing_is_lost(native: bool, tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    options: Any = {"event_segment_bytes": 64 << 10, "payload_segment_bytes": 64 << 10}
    home = tmp_path / "served"
    home.mkdir()
    with served(home, tmp_path, cached=True):
        recorded = record(many(tmp_path / "met", 1000), home / "run", native=native, **options)
        assert (recorded.ended.code, recorded.ended.lines("result")) == (0, result_of(1000)), recorded.ended.output
        log = recorded.log(0)
        assert len(log.collectives) == 1000 and all(c.state is State.COMPLETED for c in log.collectives)
        assert all(len(read_payload(recorded.folder(0), c.payload)) == 800 for c in log.collectives if c.payload)
        assert sum(c.payload is not None for c in log.collectives) == 1000


@pytest.mark.skipif(bool(no_slow_one()), reason=no_slow_one() or "a file server can be slow")
@pytest.mark.parametrize("native", [True, False])
def test_the_log_of_a_rank_that_multiprocessing_forked_is_whole(native: bool, tmp_path: Path) -> None:
    """Such a process ends without a word to Python's `atexit`, and the file server is slow."""
    home = tmp_path / "served"
    home.mkdir()
    folder = prepare_run(tmp_path / "run", native=native, local=str(home), event_segment_bytes=64 << 10)
    environment = job_environment(folder.inject, folder.config, plain_environment())
    command = [sys.executable, str(PROGRAMS / "forks_ranks.py"), str(tmp_path / "met"), "direct"]
    with served(home, tmp_path, cached=True, reply_s=0.002) as server:
        (home / "ranks").mkdir()  # as `record` makes it
        with server.slow():
            ended = run(command, tmp_path / "output.txt", env=environment)
        assert ended.code == 0, ended.output
        logs = [read_log(home / "ranks" / str(rank)) for rank in range(2)]
    remove_sockets(folder)
    assert [(len(log.collectives), log.notes[-1].kind) for log in logs] == [(3, "exit")] * 2


# what stands beside the job


@contextmanager
def standing(tmp_path: Path, count: int, *options: str, home: Path | None = None) -> Iterator[tuple[Job, Path]]:
    """A job under `prismdbg record` (into `home`) that has issued three collectives and waits for `go` in the folder
    given."""
    folder = tmp_path / "signs"
    folder.mkdir()
    command = record_command(many(tmp_path / "met", count, folder), (home or tmp_path) / "run", *options)
    with started(command, tmp_path / "output.txt") as job:
        wait_for(lambda: (folder / "ready").exists() or not job.alive, JOB_BOUND_S, "the job to stand ready")
        assert job.alive, job.output
        yield job, folder


@pytest.mark.parametrize("options", [(), ("--python-kernels",)])
def test_the_supervisor_is_killed(options: tuple[str, ...], tmp_path: Path) -> None:
    with standing(tmp_path, 500, *options) as (job, folder):
        orphans = job.family()[1:]
        job.process.kill()
        job.process.wait(20)
        (folder / "go").touch()
        gone, alive = psutil.wait_procs(orphans, timeout=JOB_BOUND_S)
        for process in alive:
            process.kill()
        assert (len(gone), alive) == (len(orphans), [])
        assert (folder / "result").read_text() == result_of(500)[0]
    log = read_log(tmp_path / "run" / "ranks" / "0")
    assert len(log.collectives) == 500
    assert [note.kind for note in log.notes if note.kind in ("lost", "incident")] == []
    abandoned = RankConfig.load(tmp_path / "run" / "config.json").socket_dir
    shutil.rmtree(abandoned, ignore_errors=True)  # another test's `record` may have removed it


@pytest.mark.parametrize("options", [(), ("--python-kernels",)])
def test_the_agents_socket_goes_away(options: tuple[str, ...], tmp_path: Path) -> None:
    with standing(tmp_path, 500, *options) as (job, folder):
        shutil.rmtree(RankConfig.load(tmp_path / "run" / "config.json").socket_dir)
        (folder / "go").touch()
        ended = job.wait()
    assert (ended.code, ended.lines("result")) == (0, result_of(500)), ended.output
    assert len(read_log(tmp_path / "run" / "ranks" / "0").collectives) == 500


@pytest.mark.parametrize("options", [(), ("--python-kernels",)])
def test_the_run_folder_is_removed_while_the_job_runs(options: tuple[str, ...], tmp_path: Path) -> None:
    with standing(tmp_path, 500, "--window", "all", *options) as (job, folder):
        sockets = RankConfig.load(tmp_path / "run" / "config.json").socket_dir
        shutil.rmtree(tmp_path / "run")
        (folder / "go").touch()
        ended = job.wait()
    shutil.rmtree(sockets, ignore_errors=True)
    assert ended.lines("result") == result_of(500), ended.output
    assert ended.code == 0, ended.output
