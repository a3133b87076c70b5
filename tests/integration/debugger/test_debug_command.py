"""`prismdbg debug` as a user types it: commands on standard input, over a restored rank and one that starts anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from chain import Said, Taken, prismdbg, recording
from jobs import EXAMPLES, forked

pytestmark = pytest.mark.job

RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]


def typed(capsule: Path, *lines: str, options: tuple[str, ...]) -> Said:
    return prismdbg("debug", capsule, *options, typed="".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def from_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 1 of a job of two that has ended, from its program's start."""
    home = tmp_path_factory.mktemp("debug")
    program = forked(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", 3, ranks=2)
    with recording(program, home, "--window", "all", "--python-kernels") as job:
        assert job.end().code == 0
        said = prismdbg("capture", job.run.path, "--rank", 1, "--origin", "start", "-o", home / "capsule")
    assert said.code == 0, said.err
    return home / "capsule"


def test_from_the_programs_start_in_a_plain_process(from_start: Path) -> None:
    plain = ("--runtime", "plain", "--allow-writes")
    said = typed(from_start, "next 4", "print rank + world", "until 2", "peers", "continue", options=plain)
    assert said.code == 0, said.out + said.err
    assert "stopped at 0.4 (next): all_reduce on group world" in said.out
    assert "(prismdbg) print rank + world\n3\n" in said.out
    assert "stopped at 2.1 (until)" in said.out
    assert re.search(r"^ +0 +0 +recorded +(first|\+[\d.]+ ms, the last)$", said.out, re.MULTILINE), "the run is there"
    assert re.search(r"^\| rank 1 parameters \w+$", said.out, re.MULTILINE), "the rank's own output is shown"
    assert "the program ended with 0" in said.out and "0 synthesized" in said.out
    assert "prismdbg: plain: starting the program" in said.err


@pytest.mark.criu
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_restored_rank(captured_live: Callable[[str], Taken], runtime: str) -> None:
    taken = captured_live("native")
    lines = ("print out", "next", "where", "print out[0]", "print ddp.module.head.weight", "continue", "info", "quit")
    said = typed(taken.capsule, *lines, options=("--runtime", runtime))
    assert said.code == 0, said.out + said.err
    first, *shown = said.out.split("(prismdbg) ")
    answers = dict(part.split("\n", 1) for part in shown)
    assert "as captured, not run yet" in first
    assert "has not run yet, so it has no frame" in answers["print out"]
    assert f"stopped at {taken.manifest.moment_a}" in answers["next"]
    assert re.search(r"-> +\d+ +.*train_ddp\.py:\d+ in main", answers["where"])
    assert answers["print out[0]"].startswith("float32[")
    assert "requires grad" in answers["print ddp.module.head.weight"]
    assert "the parameters equal the recorded ones" in answers["continue"]
    assert "(end of the log)" in answers["continue"]
    assert re.search(r"0 synthesized", answers["info"])


def test_a_picture_of_the_rank_at_a_moment(from_start: Path, tmp_path: Path) -> None:
    picture = ("--picture", tmp_path / "out.svg", "--size", "80x24")
    said = prismdbg("debug", from_start, "--runtime", "plain", "--allow-writes", "--at", "2.1", *picture)
    assert said.code == 0 and not said.out, said.out + said.err
    assert f"{tmp_path}/out.svg: 80x24, stopped at 2.1" in said.err.splitlines()
    root = ElementTree.parse(tmp_path / "out.svg").getroot()
    texts = [node.text for node in root.iter() if node.tag.endswith("}text")]
    assert {"prismdbg debug capsule", "2.1 · plain", "▶2.1"} <= set(texts), texts
    refused = prismdbg("debug", from_start, "--plain", "--picture", tmp_path / "more.svg")
    assert refused.code == 2 and "--picture cannot be combined with" in refused.err
