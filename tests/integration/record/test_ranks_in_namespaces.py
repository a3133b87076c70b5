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

import pytest
from chain import PARTS, Recording, prismdbg, recording, watched_by
from jobs import ROOT, forked
from waiting import wait_for

from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.storage.ranks_alive import RankProcess

pytestmark = pytest.mark.job
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


@contextmanager
def container(tmp_path: Path) -> Iterator[list[str]]:
    """Podman's, of this machine's programs, with a host name, a network and an own root. It goes with the test."""
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
        try:
            yield [*podman, "run", *options, "--rootfs", str(root)]
        finally:
            subprocess.run(
                [*podman, "rm", "--force", "--time", "0", name], capture_output=True, timeout=60, check=False
            )


@pytest.mark.criu
@pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="the container sees folders of root")
def test_a_rank_in_a_container_is_watched_and_not_promised(tmp_path: Path) -> None:
    with container(tmp_path) as place:
        if why := cannot_be_made(place):
            pytest.skip(why)
        with recorded(place, tmp_path) as job:
            is_refused_before(job, "PID", tmp_path)
            is_watched_and_lost(job)
