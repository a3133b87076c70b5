"""A collective that failed when it was recorded fails again in the replay, with the same words at the same place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chain import assert_identical, recording
from chain import replay as verdict_on
from jobs import plain_environment, record, replay

from prismdbg.capsule import layout
from prismdbg.capsule.log.reader import read_log
from prismdbg.model.collective import State
from prismdbg.rank.c10d.callback_error import meant

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "peer_fails.py"
SAID = ("the ", "an ", "a ", "result")


def plain(output: str) -> list[str]:
    """Errors that came to Python through C++ (a backward's) keep torch's words around them."""
    lines = [line.partition(" raised ") for line in output.splitlines() if line.startswith(SAID)]
    return [f"{what} {meant('', error.partition(': ')[2])[1]}" for what, _, error in lines]


@pytest.mark.parametrize("native", [True, False])
def test_what_a_lost_peer_raised_is_raised_again(native: bool, tmp_path: Path) -> None:
    recorded = record(
        [sys.executable, str(PROGRAM), str(tmp_path / "met")], tmp_path / "run", native=native, ranks=(0,)
    )
    assert recorded.ended.code == 0, recorded.ended.output
    said = [line for line in recorded.ended.output.splitlines() if line.startswith(SAID)]
    assert next(line for line in said if " raised " in line).startswith("an all_reduce raised")
    assert said[-1] == "result 8.0"

    failed = [c for c in recorded.log(0).collectives if c.state is State.FAILED]
    assert len(failed) >= 4 and all(c.failure is not None for c in failed), failed
    assert any(c.failure.at_issue for c in failed if c.failure), "an average is refused by the call itself"
    texts = {f"{c.failure.type}: {c.failure.text.splitlines()[0]}" for c in failed if c.failure}
    assert all(any(line.partition(" raised ")[2].startswith(text) for line in said) for text in texts), (texts, said)

    again = replay(recorded.folder(0))
    assert again.divergence is None and again.past_the_end is None, again
    assert (again.tally["missing"], again.tally["synthesized"]) == (0, 0)
    assert plain(again.output) == plain(recorded.ended.output)


def test_a_failure_that_ends_the_rank_is_an_incident_that_replays(tmp_path: Path) -> None:
    """Its peer is somewhere else: nothing is known of that but what this rank's collective raised."""
    job_line = [sys.executable, str(PROGRAM), str(tmp_path / "met"), "uncaught"]
    with recording(job_line, tmp_path, "--ranks", 0, "--window", "all") as job:
        assert job.end().code != 0
        (capsule,) = job.capsules
        (incident,) = job.supervisor["incidents"]
    assert incident["kind"] == "exception" and "third_party/gloo" in incident["text"]
    verdict = verdict_on(capsule)
    assert_identical(verdict, capsule)
    assert f"{verdict['raised']['type']}: {verdict['raised']['text']}" == incident["text"]


@pytest.mark.parametrize("options", [(), ("--python-kernels",)], ids=["native", "python"])
def test_what_it_raised_is_in_the_capsule_without_secrets_and_still_the_same(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """A password that is a word of gloo's message: the rank that replays does not know it, and says the message."""
    job_line = [sys.executable, str(PROGRAM), str(tmp_path / "met"), "uncaught"]
    env = plain_environment(DB_PASSWORD="Connection")
    with recording(job_line, tmp_path, "--ranks", 0, "--window", "all", *options, env=env) as job:
        assert job.end().code != 0
        (capsule,) = job.capsules
        (incident,) = job.supervisor["incidents"]
    assert "<redacted> " in incident["text"] and "Connection " not in incident["text"]
    (failed,) = [c.failure for c in read_log(capsule / layout.LOG).collectives if c.failure is not None]
    assert "<redacted> " in failed.text and "Connection " not in failed.text
    assert_identical(verdict_on(capsule), capsule)
