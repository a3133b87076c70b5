"""The command line on capsules whose program, once replayed, puts links and worse in place of what the host reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import PARTS, prismdbg, recording
from jobs import forked

pytestmark = pytest.mark.job

SECRET = "root:x:0:0:the host's own"
RUNTIMES = ["local", "plain", pytest.param("docker", marks=pytest.mark.docker)]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The capsule, and the file that the link leads to."""
    home = tmp_path_factory.mktemp("hostile")
    secret = home / "secret"
    secret.write_text(SECRET)
    job_line = forked(PARTS / "turns_hostile.py", secret, "link", ranks=2)
    with recording(job_line, home, "--window", "all") as job:
        assert job.end().code == 0
        said = prismdbg("capture", job.run.path, "--rank", 0, "--origin", "start", "-o", home / "capsule")
        assert said.code == 0, said.err
    return home / "capsule", secret


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_host_neither_shows_nor_changes_what_a_link_leads_to(hostile: tuple[Path, Path], runtime: str) -> None:
    capsule, secret = hostile
    kept = capsule.with_name("capsule.output")
    options = ("--runtime", runtime, *(["--allow-writes"] if runtime == "plain" else []))
    said = prismdbg("replay", capsule, *options)
    assert said.code == 0, said
    assert SECRET not in said.out + said.err + kept.read_text()
    assert "begins" in kept.read_text()
    lines = "goto 0.4\ngoto 0.1\ngoto 0.3\nmemory\nquit\n"
    said = prismdbg("debug", capsule, *options, typed=lines)
    assert SECRET not in said.out + said.err
    assert secret.read_text() == SECRET
