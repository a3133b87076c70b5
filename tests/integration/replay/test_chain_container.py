"""A replaying rank seen from outside: what it may not do, what of it is thrown away, what is left of it: nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest
from chain import CLI, PARTS, assert_identical, prismdbg, recording, replay
from jobs import ROOT, forked, plain_environment
from waiting import wait_for

from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.replay.session_folder import images_base, sessions_base
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import LABEL, engine
from prismdbg.runtime.spec import CONTROL_FOLDER

pytestmark = [pytest.mark.job, pytest.mark.criu]

BOUND_S = 240.0  # the first container of an engine waits for its image to be made
RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]
FOR_CRIU = {"SYS_PTRACE", "SYS_ADMIN", "NET_ADMIN", "SYS_TIME"}


@dataclass(frozen=True, slots=True)
class Held:
    """A rank that stands at its first stop, because nobody types."""

    debugger: subprocess.Popen[str]
    capsule: Path
    runtime: str
    rank: psutil.Process
    session: Path

    def container(self) -> dict[str, Any]:
        with connected() as client:
            return dict(client.api.inspect_container(_containers(client, self.session.name)[0]))


@contextmanager
def connected() -> Iterator[docker.DockerClient]:
    with engine(Daemon(cache_dir()), may_start=False) as ours:
        client = docker.DockerClient(base_url=ours.url)
    try:
        yield client
    finally:
        client.close()


def _containers(client: docker.DockerClient, session: str) -> list[str]:
    found = client.containers.list(all=True, filters={"label": f"{LABEL}={session}"}, ignore_removed=True)
    return [str(container.id) for container in found]


@contextmanager
def held(capsule: Path, runtime: str, script: str, home: Path) -> Iterator[Held]:
    """Types nothing into `prismdbg debug` until the test has seen enough."""
    said = home / "said.txt"
    with said.open("w") as sink:
        debugger = subprocess.Popen(
            [*CLI, "debug", str(capsule), "--runtime", runtime],
            cwd=ROOT,
            env=plain_environment(),
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:

        def stands() -> bool:
            assert debugger.poll() is None, said.read_text()
            return "recorded as:" in said.read_text()

        wait_for(stands, BOUND_S, "the rank to stand at its first stop")
        session = _session_of(debugger.pid)
        yield Held(debugger, capsule, runtime, _rank_of(session, script), session)
    finally:
        if debugger.poll() is None:
            debugger.communicate("quit\n", timeout=60)
        assert debugger.stdin is not None
        debugger.stdin.close()
        debugger.wait(60)


def _session_of(debugger: int) -> Path:
    """The folder that it holds locked."""
    targets = set()
    for link in Path(f"/proc/{debugger}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            targets.add(link.readlink())
    (session,) = (target for target in targets if target.parent == sessions_base() and target.is_dir())
    return session


def _rank_of(session: Path, script: str) -> psutil.Process:
    """By its command line, below the starter. Looked for again where processes came and went under the look."""
    return wait_for(lambda: _found_rank(session, script), BOUND_S, f"a process of {session} that runs {script}")


def _found_rank(session: Path, script: str) -> psutil.Process | None:
    for process in psutil.process_iter(["cmdline"]):
        if str(session / CONTROL_FOLDER / "spec.json") in (process.info["cmdline"] or ()):
            with suppress(psutil.NoSuchProcess):
                for child in process.children(recursive=True):
                    if any(part.endswith(script) for part in child.cmdline()):
                        return child
    return None


@pytest.fixture(scope="module")
def side_effects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The job's output folder, and capsules of rank 0: an image taken on its way, and its start."""
    home = tmp_path_factory.mktemp("side-effects")
    out = home / "out"
    out.mkdir()
    job_line = forked(PARTS / "side_effects.py", out, 600, ranks=2)
    with recording(job_line, home, "--window", "all") as job:
        job.wait_for_step(0, 3)
        said = prismdbg("capture", job.run.path, "--rank", 0, "--window", 5, "-o", home / "image")
        assert said.code == 0, f"{said.err}\n{job.job.output[-2000:]}"
        assert job.end().code == 0
        said = prismdbg("capture", job.run.path, "--rank", 0, "--origin", "start", "-o", home / "start")
        assert said.code == 0, said.err
    return out, home / "image", home / "start"


@pytest.fixture(params=["image", "start"])
def origin(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def capsule(origin: str, side_effects: tuple[Path, Path, Path]) -> Path:
    return side_effects[1] if origin == "image" else side_effects[2]


@pytest.mark.docker
def test_docker_inspect_shows_no_network_and_only_what_criu_needs(capsule: Path, tmp_path: Path) -> None:
    with held(capsule, "docker", "side_effects.py", tmp_path) as one:
        facts = one.container()
    host = facts["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert facts["NetworkSettings"]["IPAddress"] == "" and set(facts["NetworkSettings"]["Networks"]) == {"none"}
    assert host["Privileged"] is False
    assert host["PidMode"] == "" and host["AutoRemove"] is True
    added = {name.removeprefix("CAP_") for name in host["CapAdd"] or ()}
    assert added == FOR_CRIU, "to restore the rank, or to take images of it on its way"
    assert not host["Binds"], "binds follow links, mounts do not"
    written = {Path(mount["Source"]) for mount in host["Mounts"] if not mount.get("ReadOnly", False)}
    ours = {path for path in written if path.is_relative_to(one.session) or path.parent == images_base()}
    assert written == ours, "more of this machine can be written"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_rank_has_no_capability_and_no_interface(capsule: Path, runtime: str, tmp_path: Path) -> None:
    with held(capsule, runtime, "side_effects.py", tmp_path) as one:
        status = Path(f"/proc/{one.rank.pid}/status").read_text()
        interfaces = Path(f"/proc/{one.rank.pid}/net/dev").read_text().splitlines()[2:]
        kinds = ("net", "mnt", "pid", "ipc", "uts")
        shared = [kind for kind in kinds if _namespace(one.rank.pid, kind) == _namespace(os.getpid(), kind)]
        peers = [process.cmdline() for process in _inside(one.rank.pid)]
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert f"{name}:\t0000000000000000" in status
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
    assert shared == []
    assert not any("torch.distributed.run" in line for line in peers)


def _namespace(pid: int, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def _inside(pid: int) -> list[psutil.Process]:
    """Every process of its PID namespace, but for those that end as we look."""
    wanted, found = _namespace(pid, "pid"), []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.NoSuchProcess):
            if _namespace(process.pid, "pid") == wanted and process.cmdline():
                found.append(process)
    return found


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_the_rank_writes_is_thrown_away(
    side_effects: tuple[Path, Path, Path], capsule: Path, runtime: str
) -> None:
    out = side_effects[0]
    kept = {name: (out / name).read_bytes() for name in ("rank0.pt", "rank0.txt")}
    times = {name: (out / name).stat().st_mtime_ns for name in kept}
    (out / "rank0.pt").rename(out / "aside")  # what is created is thrown away, too
    try:
        verdict = replay(capsule, runtime=runtime)
        assert not (out / "rank0.pt").exists()
    finally:
        (out / "aside").rename(out / "rank0.pt")
    assert_identical(verdict, capsule)
    assert {name: (out / name).read_bytes() for name in kept} == kept
    assert {name: (out / name).stat().st_mtime_ns for name in kept} == times


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("end", ["quit", "kill -9"])
def test_nothing_is_left(capsule: Path, runtime: str, end: str, tmp_path: Path) -> None:
    with held(capsule, runtime, "side_effects.py", tmp_path) as one:
        inside = _inside(one.rank.pid)
        starter = one.rank.parents()
        if end == "kill -9":
            os.kill(one.debugger.pid, signal.SIGKILL)
            one.debugger.wait(30)
    assert one.rank in inside and len(starter) > 1
    wait_for(lambda: not any(process.is_running() for process in inside), 60, "the rank's processes to end")
    if runtime == "docker":
        with connected() as client:
            wait_for(lambda: not _containers(client, one.session.name), 60, "the container to be removed")
    if end == "kill -9":  # the next replay removes what the killed one could not
        with held(capsule, runtime, "side_effects.py", tmp_path):
            pass
    assert not one.session.exists()
    assert str(one.session) not in Path("/proc/self/mountinfo").read_text()
    assert not list(capsule.parent.glob(f".{capsule.name}*"))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_replay_that_is_terminated_cleans_up(capsule: Path, runtime: str, tmp_path: Path) -> None:
    with held(capsule, runtime, "side_effects.py", tmp_path) as one:
        one.debugger.send_signal(signal.SIGTERM)
        assert one.debugger.wait(60) == 143
    assert not one.rank.is_running()
    assert not one.session.exists()


def test_a_secret_is_not_in_the_capsule_and_reading_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    secret = "s3cr3t-0123456789"
    env = plain_environment(CHAIN_API_TOKEN=secret)
    job_line = forked(PARTS / "side_effects.py", tmp_path / "out", 5, ranks=2)
    with recording(job_line, tmp_path, "--window", "all", env=env) as job:
        assert job.end().code == 0
        capsule = tmp_path / "capsule"
        assert prismdbg("capture", job.run.path, "--rank", 1, "--origin", "start", "-o", capsule).code == 0
    assert secret in (tmp_path / "out" / "rank1.txt").read_text()
    rank = json.loads((capsule / "prismdbg" / "rank.json").read_text())
    assert "CHAIN_API_TOKEN" in rank["redacted"] and "CHAIN_API_TOKEN" not in rank["environment"]
    assert not [path for path in capsule.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    verdict = replay(capsule, code=5)
    assert verdict["raised"]["type"] == "RedactedVariable"
    assert "the environment variable CHAIN_API_TOKEN is not in this capsule" in verdict["raised"]["text"]
