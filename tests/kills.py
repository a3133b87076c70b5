"""SIGKILL at random moments: `python tests/kills.py N [--seed S] [--only WHAT]`, or `make kills N=100`.

Who is killed in turn: a rank, all ranks, the supervisor, all of them at once, `capture`, `replay`, `debug`, the build
of the recorder; where there is Docker, `replay` and `debug` in a container, and `build`, which makes its image.
Afterwards logs are readable and hold whatever was complete, and after the next command nothing is left: no process,
session, container, image, mount, socket folder or temporary name. A seed gives the same choice again.
"""

# ruff: noqa: E402  the tests' own modules are found only once their folders are on the path

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "integration"), str(Path(__file__).parents[1])]

import psutil
from chain import CLI, PARTS, Recording, prismdbg, recording, replay
from docker import DockerClient
from jobs import ROOT, forked, plain_environment
from waiting import wait_for

from prismdbg.capsule import checked_json, layout
from prismdbg.capsule.log.reader import read_log
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import PrismError
from prismdbg.jobs.capture.capture import LEFTOVER, socket_of
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.replay.session_folder import images_base, sessions_base
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.collective import State
from prismdbg.protocol.client import AgentClient
from prismdbg.rank.native import build as native_build
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import engine
from prismdbg.runtime.docker.image import environment_tag
from prismdbg.runtime.docker_runtime import DockerRuntime
from prismdbg.runtime.environment import Environment, of_files
from prismdbg.settings.rank_config import RankConfig

FAULTS = Path(__file__).parent / "faults"
PHASES = 40
BOUND_S = 120.0


@dataclass(slots=True, kw_only=True)
class World:
    """What all kills of one run share: a folder, a job that learns on, and a capsule of it."""

    home: Path
    random: random.Random
    job: Recording
    capsule: Path
    in_docker: bool = False
    number: int = 0

    def folder(self) -> Path:
        self.number += 1
        folder = self.home / f"kill-{self.number}"
        folder.mkdir()
        return folder


# ranks and supervisor


def _is_removed(sockets: Path, job: Recording) -> bool:
    """By a command that comes after the kill: by the next one, where another command of this user looks at the same
    moment whether an agent answers there."""
    if sockets.exists():
        prismdbg("why", job.run.path)
    return not sockets.exists()


def kill_in_a_job(world: World, victims: str) -> None:
    folder = world.folder()
    signs = folder / "signs"
    signs.mkdir()
    for phase in range(PHASES):
        (signs / f"go.{phase}").touch()
    after = world.random.choice([0, world.random.randrange(1, PHASES * 20)])
    launch = [sys.executable, FAULTS / "launch.py", signs, PHASES]
    options = ("--window", "all") if world.random.random() < 0.5 else ()
    with recording(list(map(str, launch)), folder, *options) as job:
        wait_for(lambda: (signs / "progress.1").exists() or not job.job.alive, BOUND_S, "the ranks to begin")
        wait_for(lambda: _done(signs, 0) >= after or not job.job.alive, BOUND_S, f"{after} steps")
        ranks = [psutil.Process(int((signs / f"pid.{rank}").read_text())) for rank in range(2)]
        victims_of: dict[str, list[Any]] = {
            "rank": [world.random.choice(ranks)],
            "all ranks": ranks,
            "supervisor": [job.job.process],
            "everything": [job.job.process, *job.job.process.children(), *ranks],
        }
        for process in victims_of[victims]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_for(lambda: not _living(str(signs)), BOUND_S, "the job to end")
        with suppress(AssertionError):
            job.job.wait(BOUND_S)
        sockets = Path(RankConfig.load(job.run.config).socket_dir)
        try:
            _check_logs(job.run, signs)
        except PrismError as error:  # a rank that could not be recorded has said so
            raise AssertionError(f"{error}; the job said:\n{job.job.output[-4000:]}") from error
        said = prismdbg("why", job.run.path)
        if _done(signs, 0) or _done(signs, 1):
            assert said.code == ExitCode.OK, said.err
        else:  # killed before the first collective, with which a log begins
            assert said.code == ExitCode.OK or "contains no log of any rank" in said.err, said.err
        wait_for(lambda: _is_removed(sockets, job), BOUND_S, f"{sockets} to be removed")
    left = [path for path in folder.rglob("*") if path.suffix == ".tmp" or ".partial-" in path.name]
    assert not left, left


def _done(signs: Path, rank: int) -> int:
    path = signs / f"progress.{rank}"
    return int.from_bytes(path.read_bytes(), "little") if path.exists() else 0


def _check_logs(run: RunFolder, signs: Path) -> None:
    for rank in range(2):
        if not (done := _done(signs, rank)):
            continue
        log = read_log(run.latest(rank))
        complete = sum(c.state is State.COMPLETED for c in log.collectives)
        assert complete >= done, f"rank {rank} did {done} steps, its log holds {complete}"
        assert [c.record_id for c in log.collectives] == list(range(len(log.collectives)))


# commands


def killed(world: World, line: list[object], longest_s: float, typed: str = "") -> None:
    """Somewhere on its way; where it is quicker it has ended by itself."""
    process = subprocess.Popen(
        list(map(str, line)),
        cwd=ROOT,
        env=plain_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(typed)
        process.stdin.flush()
        with suppress(subprocess.TimeoutExpired):
            process.wait(world.random.uniform(0, longest_s))
    finally:
        process.kill()
        process.wait(30)
        with suppress(BrokenPipeError):
            process.stdin.close()


def kill_a_capture(world: World) -> None:
    output = world.folder() / "capsule"
    line = [*CLI, "capture", world.job.run.path, "--rank", world.random.randrange(2), "-o", output]
    killed(world, line, 6)
    if output.exists():
        assert prismdbg("verify", output).code == 0, "half a capsule has the name of a whole one"
    for rank in range(2):
        world.job.wait_for_step(rank, world.job.step(rank) + 3, bound_s=60)
        with AgentClient(socket_of(world.job.run.latest(rank))) as agent:
            assert not agent.ask("status")["parked"]


def kill_a_replay(world: World) -> None:
    killed(world, [*CLI, "replay", world.capsule, "--runtime", "local"], 8)
    _check_processes(world)


def kill_a_debugger(world: World) -> None:
    typed = "next\nnext 2\nprint rank\nkeep\nnext\nprevious\ncontinue\n"
    killed(world, [*CLI, "debug", world.capsule, "--runtime", "local"], 10, typed)
    _check_processes(world)


SMALL_SOURCES = ("process/descriptor", "log/segment", "recorder/spare_segments", "process/background_thread")
BUILD = """
import sys
from pathlib import Path
from prismdbg.rank.native import build as native_build
native_build.SOURCES = Path(sys.argv[2])
native_build.build(Path(sys.argv[1]))
"""


def kill_a_build(world: World) -> None:
    """The next one, of other sources, removes what it left. Of ours those that are compiled in seconds."""
    cache, ours, other = world.home / "cache", world.folder(), world.folder()
    for source in (path for name in SMALL_SOURCES for path in native_build.SOURCES.glob(f"{name}.*")):
        copy = ours / source.relative_to(native_build.SOURCES)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(source, copy)
    for folder in (ours, other):
        (folder / "one.cpp").write_text(f"int {folder.name.replace('-', '_')}() {{ return 1; }}\n")
    killed(world, [sys.executable, "-c", BUILD, cache, ours], 8)
    wait_for(lambda: not _living(str(cache)), BOUND_S, "its compilers to end")
    subprocess.run([sys.executable, "-c", BUILD, cache, other], cwd=ROOT, check=True, timeout=BOUND_S)
    left = [path for path in (cache / "native").rglob("*") if path.is_file() and path.suffix != ".so"]
    assert not left, f"the build has left {left}"
    assert not [path for path in (cache / "native").iterdir() if not list(path.glob("*.so"))]


def kill_a_replay_in_docker(world: World) -> None:
    killed(world, [*CLI, "replay", world.capsule, "--runtime", "docker"], 10)
    _check_processes(world)
    wait_for(lambda: not _containers("running"), 60, "the container to end")


def kill_a_debugger_in_docker(world: World) -> None:
    typed = "next\nnext 2\nprint rank\nkeep\nnext\nprevious\ncontinue\n"
    killed(world, [*CLI, "debug", world.capsule, "--runtime", "docker"], 12, typed)
    _check_processes(world)
    wait_for(lambda: not _containers("running"), 60, "the container to end")


def kill_an_image_build(world: World) -> None:
    """Of an environment that nobody has had, in two layers; the next one makes the image."""
    capsule = world.folder() / "capsule"
    shutil.copytree(world.capsule, capsule, symlinks=True)
    whole = Environment.from_json(checked_json.read(capsule / layout.ENVIRONMENT))
    files = world.random.sample([file for file in whole.files if not file.target], 400)
    few = of_files(files, extra=[file.path for file in files[:100]])
    data = json.dumps(few.to_json()).encode()
    (capsule / layout.ENVIRONMENT).write_bytes(data)
    manifest = json.loads((capsule / layout.MANIFEST).read_bytes())
    manifest["files"][layout.ENVIRONMENT] = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (capsule / layout.MANIFEST).write_text(json.dumps(manifest))
    killed(world, [*CLI, "build", capsule], 4)
    said = prismdbg("build", capsule)
    assert said.code == 0, said.err
    with engine(Daemon(cache_dir())) as docker:
        for part in (few, few.parts()[0]):
            tag = environment_tag(part)
            assert docker.has_image(tag), f"{tag} was not made"
            docker.remove_image(tag)
    wait_for(lambda: not _containers(), 60, f"the containers of builds to be removed: {_containers()}")


def _containers(*states: str) -> list[str]:
    """On the engine of this cache, which is nobody else's; in these states or in any."""
    with engine(Daemon(cache_dir())) as docker:
        client = DockerClient(docker.url)
        try:
            found = client.containers.list(all=True, ignore_removed=True)
            return [str(one.id) for one in found if not states or one.status in states]
        finally:
            client.close()


def _check_processes(world: World) -> None:
    wait_for(lambda: not _living(str(world.capsule)), 30, "the replay's processes to end")


def _living(word: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and any(word in part for part in process.cmdline()):
                found.append(process)
    return found


KILLS: dict[str, Callable[[World], None]] = {
    "rank": lambda world: kill_in_a_job(world, "rank"),
    "capture": kill_a_capture,
    "all ranks": lambda world: kill_in_a_job(world, "all ranks"),
    "replay": kill_a_replay,
    "supervisor": lambda world: kill_in_a_job(world, "supervisor"),
    "debug": kill_a_debugger,
    "everything": lambda world: kill_in_a_job(world, "everything"),
    "build": kill_a_build,
}
DOCKER_KILLS: dict[str, Callable[[World], None]] = {
    "replay in docker": kill_a_replay_in_docker,
    "image build": kill_an_image_build,
    "debug in docker": kill_a_debugger_in_docker,
}


@contextmanager
def world_of(home: Path, seed: int, *, in_docker: bool = False) -> Iterator[World]:
    """A job that learns until it is told, and a capsule of one of its ranks, with its process. in_docker: kills there,
    too, on an engine of its own (`own_engine`)."""
    (home / "told").mkdir()
    with recording(forked(PARTS / "until_told.py", home / "told", 0.05, ranks=2), home) as job:
        job.wait_for_step(1, 3)
        said = prismdbg("capture", job.run.path, "--rank", 1, "--window", 3, "-o", home / "capsule")
        assert said.code == 0, said.err
        if in_docker:  # the image takes minutes
            assert prismdbg("build", home / "capsule", bound_s=900).code == 0
        before = _sessions()
        world = World(home=home, random=random.Random(seed), job=job, capsule=home / "capsule", in_docker=in_docker)
        yield world
        _check_nothing_is_left(world, before)


def _sessions() -> set[Path]:
    return {
        path for base in (sessions_base(), images_base()) if base.is_dir() for path in base.iterdir() if path.is_dir()
    }


def _check_nothing_is_left(world: World, before: set[Path]) -> None:
    """After the next commands of each kind, and the job's own end."""
    home, job, last = world.home, world.job, world.home / "last"
    said = prismdbg("capture", job.run.path, "--rank", 0, "-o", last)
    assert said.code == 0, said.err
    replay(last)
    replay(home / "capsule")
    if world.in_docker:
        replay(home / "capsule", runtime="docker")
        wait_for(lambda: not _containers(), 60, f"containers to be removed: {_containers()}")
    assert not list(job.run.path.glob(f"{LEFTOVER}*")), "images of captures are left"
    assert not list(home.glob(".*.partial-*"))

    def mine() -> set[Path]:
        return {path for path in _sessions() - before if _is_of(home, path)}

    wait_for(lambda: not mine(), 60, "sessions to be removed, maybe by somebody else's replay that runs beside")
    (home / "told" / "last").write_text(str(job.step(0) + 20))
    ended = job.end()
    assert ended.code == 0, ended.output[-3000:]
    wait_for(lambda: not _living(str(home)), 30, f"the last processes to end: {_living(str(home))}")
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(home) in line]
    assert not mounts, mounts


def _is_of(home: Path, session: Path) -> bool:
    """One that is being removed as we look may be: whoever waits looks again."""
    try:
        return any(str(home) in path.read_text(errors="replace") for path in session.glob("**/spec.json"))
    except FileNotFoundError:
        return session.exists()


def chosen(docker: str) -> dict[str, Callable[[World], None]]:
    return {**(KILLS if docker != "only" else {}), **(DOCKER_KILLS if docker != "no" else {})}


@contextmanager
def own_engine(cache: Path) -> Iterator[Daemon]:
    """With a cache, an engine of Docker's and its containers that nobody else on this machine has."""
    shared = cache_dir()
    for part in ("criu", "native", "starter-python"):
        if (shared / part).is_dir():
            shutil.copytree(shared / part, cache / shared.name / part, symlinks=True)
    os.environ["XDG_CACHE_HOME"] = str(cache)
    daemon = Daemon(cache_dir())
    try:
        yield daemon
    finally:
        daemon.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--only", choices=[*KILLS, *DOCKER_KILLS])
    parser.add_argument(
        "--docker", choices=["yes", "no", "only"], help="kills in containers  [default: where they can be]"
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its jobs end with it
    print(f"seed {args.seed}", flush=True)
    began, done = time.monotonic(), Counter[str]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True)))
        daemon = stack.enter_context(own_engine(folder / "cache"))
        kills = chosen(args.docker or ("no" if DockerRuntime(daemon).available() else "yes"))
        kills = {args.only: {**KILLS, **DOCKER_KILLS}[args.only]} if args.only else kills
        (home := folder / "home").mkdir()
        in_docker = not kills.keys().isdisjoint(DOCKER_KILLS)
        world = stack.enter_context(world_of(home, args.seed, in_docker=in_docker))
        for name in itertools.islice(itertools.cycle(kills), args.count):
            since = time.monotonic()
            kills[name](world)
            done[name] += 1
            print(f"{done.total()}/{args.count} {name} {time.monotonic() - since:.1f} s", flush=True)
    counts = ", ".join(f"{name} {count}" for name, count in done.items())
    print(
        f"{done.total()} kills in {time.monotonic() - began:.0f} s ({counts}): nothing lost, nothing left", flush=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
