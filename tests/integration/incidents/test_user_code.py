"""`--user-code`: a job whose collectives are called by an installed package. Without it, `record`, `why` and the rank
itself name the program's line; with the package's folder, they name the package's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chain import Taken, prismdbg, recording
from jobs import forked, plain_environment

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "wrapped_calls.py"
KIT = """import torch.distributed as dist


def mean(tensor):
    dist.all_reduce(tensor)
"""
LINE = 5
CALLED = f"{PROGRAM}:16 in main"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = tmp_path_factory.mktemp("env") / "lib" / "python3.11" / "site-packages" / "kit"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(KIT)
    return package


@pytest.fixture(scope="module")
def recorded(kit: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taken]:
    with job(kit, tmp_path_factory.mktemp("job"), "--window", "all", "--user-code", kit) as taken:
        yield taken


@pytest.fixture(scope="module")
def with_checkpoints(kit: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taken]:
    with job(kit, tmp_path_factory.mktemp("job"), "--checkpoint-every", 1) as taken:
        yield taken


@contextmanager
def job(kit: Path, home: Path, *options: object) -> Iterator[Taken]:
    env = plain_environment(PYTHONPATH=str(kit.parent))
    with recording(forked(PROGRAM, ranks=2), home, *options, env=env) as started:
        ended = started.end()
        assert len(started.capsules) == 1, ended.output[-3000:]
        yield Taken(recording=started, ended=ended, capsule=started.capsules[0])


def test_record_names_the_packages_line(recorded: Taken, kit: Path) -> None:
    assert f"{kit}/__init__.py:{LINE} in mean" in recorded.manifest.incident.text
    assert f"{kit}/__init__.py:{LINE} in mean" in recorded.ended.output


def test_why_names_the_line_of_what_it_is_given(recorded: Taken, kit: Path) -> None:
    of_kit = f"{kit}/__init__.py:{LINE} in mean"
    assert f"at {CALLED}, by kit/__init__.py:{LINE} in mean" in why(recorded)
    assert f"at {CALLED}, by kit/__init__.py:{LINE} in mean" in why(recorded, "--user-code", PROGRAM.parent)
    told = why(recorded, "--user-code", kit)
    assert f"at {of_kit}" in told and CALLED not in told, told


@pytest.mark.parametrize(("is_given", "line"), [(True, LINE), (False, 16)])
@pytest.mark.parametrize(
    "origin", ["recorded", pytest.param("with_checkpoints", marks=pytest.mark.criu)], ids=["start", "image"]
)
def test_the_replayed_rank_has_the_same_rule(
    request: pytest.FixtureRequest, kit: Path, origin: str, is_given: bool, line: int
) -> None:
    """A condition is evaluated in the rank."""
    taken: Taken = request.getfixturevalue(origin)
    option = ("--user-code", kit) if is_given else ()
    lines = f"break all_reduce if line == {line}\ncontinue\n"
    said = prismdbg("replay", taken.capsule, "--runtime", "local", *option, "-x", "-", typed=lines)
    assert f"(breakpoint 1: all_reduce if line == {line})" in said.out, said.out + said.err
    name = f"{kit}/__init__.py:{LINE} in mean" if is_given else CALLED
    assert f"float32[4]\n{name}\n" in said.out


def test_the_programs_lines_can_be_stopped_at_although_they_are_not_named(recorded: Taken, kit: Path) -> None:
    lines = "break wrapped_calls.py:16 if step == 1\ncontinue\nup\nlocals\n"
    said = prismdbg("replay", recorded.capsule, "--runtime", "local", "--user-code", kit, "-x", "-", typed=lines)
    assert "stopped at 1.1 (breakpoint 1: wrapped_calls.py:16 if step == 1)" in said.out, said.out + said.err
    assert "optimizer" in said.out.partition("(prismdbg) locals")[2]


def why(recorded: Taken, *options: object) -> str:
    return prismdbg("why", recorded.recording.run.path, *options).out
