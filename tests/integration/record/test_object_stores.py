"""A run and its capsule in an S3 store: moto's server on this machine, spoken to as to any other."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from chain import Said, assert_identical
from chain import prismdbg as command
from jobs import forked, plain_environment, record_command, run
from waiting import wait_for

pytest.importorskip("s3fs", reason="s3fs is missing (pip install 'prismdbg[remote]')")
pytest.importorskip("moto.server", reason="moto's server is missing (pip install 'moto[s3]' flask flask-cors)")

pytestmark = pytest.mark.job
JOBS = Path(__file__).parents[1] / "node_jobs"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of those who use it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
    }
    log = tmp_path_factory.mktemp("store") / "log.txt"
    with log.open("wb") as sink:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=sink, stderr=sink
        )
    try:
        wait_for(lambda: server.poll() is not None or _listens(port), 60, "the S3 server")
        assert server.poll() is None, log.read_text()
        make = "import os, s3fs; s3fs.S3FileSystem(endpoint_url=os.environ['AWS_ENDPOINT_URL']).mkdir('bucket')"
        subprocess.run([sys.executable, "-c", make], env=plain_environment(**settings), check=True, timeout=120)
        yield settings
    finally:
        server.terminate()
        server.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_run_and_its_capsule_go_through_a_store(store: Mapping[str, str], tmp_path: Path) -> None:
    def prismdbg(*arguments: object) -> Said:
        said = command(*arguments, env=plain_environment(**store))
        assert said.code == 0, said.err
        return said

    job = forked(JOBS / "goes_wrong_on_a_rank.py", "nan", 1, ranks=2)
    ended = run(record_command(job, tmp_path / "run", "--window", "all"), tmp_path / "out.txt", env=plain_environment())
    assert ended.code == 0, ended.output
    (capsule,) = (tmp_path / "run" / "capsules").iterdir()

    prismdbg("gather", tmp_path / "run", "-o", "s3://bucket/run")
    again = command("gather", tmp_path / "run", "-o", "s3://bucket/run", env=plain_environment(**store))
    assert again.code == 2 and "already exists" in again.err, again.err
    assert prismdbg("status", "s3://bucket/run").out == prismdbg("status", tmp_path / "run").out
    assert "goes_wrong_on_a_rank.py:" in prismdbg("why", "s3://bucket/run").out

    assert prismdbg("diff", "s3://bucket/run", tmp_path / "run", "--rank", 0).out

    prismdbg("pack", capsule, "-o", "s3://bucket/one.tar.zst")
    assert "rank" in prismdbg("inspect", "s3://bucket/one.tar.zst").out
    verdict = prismdbg("replay", "s3://bucket/one.tar.zst", "--runtime", "local", "--json")
    assert_identical(verdict.json, capsule)
    prismdbg("unpack", "s3://bucket/one.tar.zst", "-o", "s3://bucket/unpacked")
    prismdbg("verify", "s3://bucket/unpacked")

    missing = command("status", "s3://bucket/none", env=plain_environment(**store))
    assert missing.code == 2 and "nothing is at s3://bucket/none" in missing.err, missing.err
    gone = command(
        "status", "s3://bucket/run", env=plain_environment(**{**store, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    )
    assert gone.code == 4 and "cannot be reached" in gone.err, gone.err


DIES = """
import os, sys
from prismdbg.cli import main
from prismdbg.jobs.storage.remote import upload
put, left = upload._put, iter(range(5))
upload._put = lambda *told: put(*told) if next(left, None) is not None else os._exit(9)
main.run(["gather", sys.argv[1], "-o", "s3://bucket/half"])
"""


def test_an_upload_that_was_killed_is_no_run_and_is_continued(store: Mapping[str, str], tmp_path: Path) -> None:
    env = plain_environment(**store)
    job = forked(JOBS / "goes_wrong_on_a_rank.py", "nan", 1, ranks=2)
    ended = run(record_command(job, tmp_path / "run"), tmp_path / "out.txt", env=plain_environment())
    assert ended.code == 0, ended.output
    dead = subprocess.run([sys.executable, "-c", DIES, tmp_path / "run"], env=env, check=False, timeout=120)
    assert dead.returncode == 9
    half = command("status", "s3://bucket/half", env=env)
    assert half.code == 3 and "is not complete: its upload was interrupted" in half.err, half.err
    went_on = command("gather", tmp_path / "run", "-o", "s3://bucket/half", env=env)
    assert went_on.code == 0 and "5 files are there" in went_on.err, went_on.err
    whole = command("status", "s3://bucket/half", env=env)
    assert whole.code == 0 and whole.out == command("status", tmp_path / "run", env=env).out
