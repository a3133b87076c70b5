"""Ranks in namespaces that their supervisor is not in: they are found, watched, and what cannot be captured is said."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from chain import PARTS, Recording, assert_identical, prismdbg, recording, replay, watched_by
from jobs import ROOT, forked, plain_environment
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.storage.ranks_alive import RankProcess

pytestmark = pytest.mark.job
STATEFUL = Path(__file__).parents[1] / "programs" / "stateful_mlp.py"
NAN_AT = 10
NAMED = ["sh", "-c", 'hostname box; exec "$@"', "sh"]
PLACES = {
    "PID": ["unshare", "--user", "--pid", "--fork", "--mount-proc"],
    "PID, by another host name": ["unshare", "--user", "-r", "--pid", "--uts", "--fork", "--mount-proc", *NAMED],
    "mount": ["unshare", "--mount"],
    "user": ["unshare", "--user", "-r"],
    "host name (UTS)": ["unshare", "--uts"],
}


def cannot_be_made(place: list[str]) -> str:
    made = subprocess.run([*place, "true"], capture_output=True, text=True, timeout=30, check=False)
    return f"no such namespaces here: {made.stderr.strip()[:200]}" if made.returncode else ""


@contextmanager
def recorded(place: list[str], tmp_path: Path) -> Iterator[Recording]:
    (tmp_path / "told").mkdir(exist_ok=True)
    line = [*place, *forked(PARTS / "until_told.py", tmp_path / "told", 0.05, ranks=2)]
    with recording(line, tmp_path, "--window", "all") as job:
        job.wait_for_step(1, 3)
        yield job


def is_watched_and_lost(job: Recording) -> None:
    """It is found here by its own PID and namespace, and its death is seen."""
    assert [rank["state"] for rank in prismdbg("status", job.run.path, "--json").json["ranks"]] == ["running"] * 2
    found = RankProcess(job.run.latest(1))
    assert found.pid is not None and found.is_alive()
    job.wait_for(lambda: found.pid in watched_by(job.job.process.pid), 60, "the supervisor to watch rank 1")
    os.kill(found.pid, signal.SIGKILL)
    wait_for(lambda: job.supervisor["incidents"], 60, "the death of rank 1")
    (incident,) = job.supervisor["incidents"]
    assert (incident["kind"], incident["ranks"]) == ("lost", [1]) and "SIGKILL" in incident["text"], incident
    assert "another namespace" not in "\n".join(job.supervisor["problems"])


def is_refused_before(job: Recording, kind: str, tmp_path: Path) -> None:
    """By `doctor`, and by `capture` in the same words; what needs no checkpoint works."""
    why = f"rank 1 runs in another {kind} namespace than this command"
    told = prismdbg("doctor", "--job", job.run.path, "--json")
    ranks = {rank["folder"]: rank for rank in told.json["ranks"]}
    assert told.code == 0 and why in ranks["1"]["checkpoint"] and ranks["1"]["start"] == "", ranks
    refused = prismdbg("capture", job.run.path, "--rank", 1, "-o", tmp_path / "capsule")
    assert refused.code == 4 and why in refused.err and "--origin start" in refused.err, refused.err
    whole = prismdbg("capture", job.run.path, "--rank", 1, "--origin", "start", "-o", tmp_path / "capsule")
    assert whole.code == 0, whole.err


@pytest.mark.criu
@pytest.mark.parametrize("kind", PLACES)
def test_a_rank_in_namespaces_of_its_own_is_watched_and_not_promised(kind: str, tmp_path: Path) -> None:
    if why := cannot_be_made(PLACES[kind]):
        pytest.skip(why)
    with recorded(PLACES[kind], tmp_path) as job:
        is_refused_before(job, kind.partition(",")[0], tmp_path)
        is_watched_and_lost(job)


def has_state_capsules(place: list[str], home: Path) -> None:
    """Its NaN is captured by the supervisor, and the rank by a command, from snapshots; both replay out here."""
    job_line = forked(STATEFUL, "--steps", 1_000_000, "--rest-s", 0.25, "--nan-data-at", NAN_AT, ranks=2)
    env = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))
    with recording([*place, *job_line], home, "--state-every", 8, env=env) as job:
        job.wait_for(lambda: job.capsules, 120, "a capsule of the NaN")
        assert RankProcess(job.run.latest(1)).pid not in (None, job.pid(1)), "in a PID namespace of its own"
        said = prismdbg("capture", job.run.path, "--rank", 0, "-o", home / "taken")
        assert said.code == 0, said.err
        reached = job.step(0)
        job.wait_for_step(0, reached + 4)
    (incident,) = job.capsules
    manifest = Capsule.open(incident).manifest
    assert (manifest.origin, manifest.incident.kind, manifest.rank) == (Origin.STATE, IncidentKind.NAN, 1)
    assert Capsule.open(home / "taken").manifest.origin is Origin.STATE
    for capsule in (incident, home / "taken"):
        assert_identical(replay(capsule), capsule)


def test_a_rank_in_namespaces_of_its_own_is_captured_from_its_state(tmp_path: Path) -> None:
    """PID, mount and user namespaces; no CRIU is needed."""
    if why := cannot_be_made(PLACES["PID"]):
        pytest.skip(why)
    has_state_capsules(PLACES["PID"], tmp_path)


@pytest.fixture
def in_container(tmp_path: Path) -> Iterator[list[str]]:
    """The command line of podman in front of another one, which runs in a container with this machine's programs."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    if os.geteuid() != 0:
        pytest.skip("the container sees folders of root")
    root = tmp_path / "root"
    for name in ("usr", "etc", "tmp", "proc", "dev", "sys", "run"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    with TemporaryDirectory(dir="/tmp", prefix="podman") as short:  # podman takes no path of more than 50 characters
        podman = ["podman", "--root", f"{short}/root", "--runroot", f"{short}/run", "--tmpdir", f"{short}/tmp"]
        podman += ["--events-backend", "none", "--cgroup-manager", "cgroupfs"]
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]  # it may not raise ours
        seen = ["/usr", sys.prefix, sys.base_prefix, str(ROOT)]
        seen = [f"--volume={folder}:{folder}:ro" for folder in dict.fromkeys(seen)]
        seen += [f"--volume={folder}:{folder}" for folder in (tmp_path, Path(cache_dir()))]
        name = f"prismdbg-test-{os.getpid()}"
        options = ["--rm", "--name", name, "--network", "none", "--env-host", "--workdir", str(ROOT), *limits, *seen]
        place = [*podman, "run", *options, "--rootfs", str(root)]
        if why := cannot_be_made(place):
            pytest.skip(why)
        try:
            yield place
        finally:
            subprocess.run(
                [*podman, "rm", "--force", "--time", "0", name], capture_output=True, timeout=60, check=False
            )
            wait_for(lambda: not is_named_by_a_process(short), 60, "podman, which tidies up, to end")
            for left in [one.mountpoint for one in psutil.disk_partitions(all=True) if short in one.mountpoint]:
                subprocess.run(["umount", "--lazy", left], check=False)  # its client was killed


def is_named_by_a_process(folder: str) -> bool:
    lines = (process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"]))
    return any(folder in word for line in lines for word in line)


@pytest.mark.criu
def test_a_rank_in_a_container_is_watched_and_not_promised(in_container: list[str], tmp_path: Path) -> None:
    with recorded(in_container, tmp_path) as job:
        is_refused_before(job, "PID", tmp_path)
        is_watched_and_lost(job)


def test_a_rank_in_a_container_is_captured_from_its_state(in_container: list[str], tmp_path: Path) -> None:
    has_state_capsules(in_container, tmp_path)
