"""What `prismdbg replay` says, and exits with, when a replay diverges, or cannot be made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chain import INCIDENTS, Taken, altered, assert_identical, prismdbg, replay, span
from jobs import plain_environment

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.rank_json import RankJson

pytestmark = [pytest.mark.job, pytest.mark.criu]

NO_ENGINE = plain_environment(DOCKER_HOST="unix:///nowhere/docker.sock")


@pytest.fixture(scope="module")
def other_rate(nan_from_start: Taken, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rank's capsule, and its program is told another learning rate. Nobody knows how its generators began."""
    capsule = nan_from_start.capsule
    argv = [*_rank(capsule)["orig_argv"], "--lr", "2.1e-3"]
    return altered(capsule, tmp_path_factory.mktemp("diverging") / "capsule", orig_argv=argv, seeds={})


def _rank(capsule: Path) -> RankJson:
    return Capsule.open(capsule).rank()


@pytest.fixture
def first_difference(other_rate: Path) -> str:
    """The loss of the second step, the first value that stands on the changed parameters."""
    second = [r for r in span(other_rate) if r.moment.step == 1 and r.name == "all_reduce"]
    return str(second[0].moment)


def test_a_divergence_is_told_with_its_story(other_rate: Path, first_difference: str) -> None:
    said = prismdbg("replay", other_rate, "--runtime", "local")
    assert said.code == 5
    assert f"diverged at {first_difference}: all_reduce sends different values from the recorded ones" in said.out
    assert "the last of group world, as recorded:" in said.out
    assert re.search(r"incidents/nan/train\.py:\d+", said.out)
    assert re.search(r"^-> +\d+ +dist\.all_reduce\(mean\)", said.out, re.MULTILINE)
    assert not said.out.startswith("identical")
    assert "possible: the capsule lacks the start state of the random generators of random, torch" in said.out
    assert "checked and not found: changed files, another environment" in said.out


def test_the_story_as_json(other_rate: Path, first_difference: str) -> None:
    verdict = replay(other_rate, code=5)
    story = verdict["story"]
    assert (verdict["outcome"], verdict["moment"]) == ("diverged", first_difference)
    assert story["expected"]["op"] == story["actual"]["op"] == "allreduce_"
    assert [(d["field"], d["structural"]) for d in story["differences"]] == [("sent", False)]
    assert 0 < len(story["history"]) <= 8
    assert any(f["filename"].endswith("incidents/nan/train.py") for f in story["actual"]["frames"])


def test_a_program_that_ends_early_diverges(nan_from_start: Taken, tmp_path: Path) -> None:
    argv = [*_rank(nan_from_start.capsule)["orig_argv"], "--steps", "20"]
    verdict = replay(altered(nan_from_start.capsule, tmp_path / "short", orig_argv=argv), code=5)
    assert verdict["outcome"] == "diverged"
    assert "changed files" in verdict["story"]["causes"]["not_found"], verdict


@pytest.mark.parametrize("fixture", ["nan_from_start", "nan_with_checkpoints"])
def test_until_a_moment(fixture: str, request: pytest.FixtureRequest) -> None:
    capsule = request.getfixturevalue(fixture).capsule
    records = span(capsule)
    target = records[len(records) // 2]
    shown = prismdbg("replay", capsule, "--runtime", "local", "--until", str(target.moment))
    assert shown.code == 0
    assert shown.out.startswith(f"identical up to {target.moment}: {len(records) // 2 + 1} collectives compared")
    end = Capsule.open(capsule).manifest.moment_b
    past = prismdbg("replay", capsule, "--runtime", "local", "--until", f"{end.step + 2}.9")
    assert past.code == 2
    assert (
        f"ends at {end}, but --until is {end.step + 2}.9" in past.err and f"--until {end}, or leave it out" in past.err
    )


def test_out_of_time(nan_from_start: Taken) -> None:
    command = ("replay", nan_from_start.capsule, "--runtime", "local", "--timeout", "0.001")
    said = prismdbg(*command)
    assert said.code == 124
    assert "error: the replay did not reach its end within 0.001 s: the preparation of rank 2 " in said.err
    assert prismdbg(*command, "--bisect", "--source", INCIDENTS / "nan").code == 125


def test_a_place_that_is_not_there(nan_with_checkpoints: Taken, nan_from_start: Taken) -> None:
    command = ("replay", nan_with_checkpoints.capsule, "--runtime", "docker")
    missing = prismdbg(*command, env=NO_ENGINE)
    assert missing.code == 4
    assert "error: " in missing.err and "try: " in missing.err
    bisected = ("replay", nan_from_start.capsule, "--runtime", "docker", "--source", INCIDENTS / "nan", "--bisect")
    assert prismdbg(*bisected, env=NO_ENGINE).code == 125
    plain = prismdbg("replay", nan_with_checkpoints.capsule, "--runtime", "plain")
    assert plain.code == 4
    assert prismdbg("replay", nan_with_checkpoints.capsule, "--runtime", "podman").code == 2


def test_without_an_engine_the_next_best_place_is_taken(nan_with_checkpoints: Taken) -> None:
    """The capsule's path may lead upwards: in the rank's place there is no such path."""
    capsule = nan_with_checkpoints.capsule
    said = prismdbg("replay", capsule / ".." / capsule.name, "--json", env=NO_ENGINE)
    assert said.code == 0, said.err
    assert said.json["runtime"] == "local"


def test_bisect_runs_what_is_checked_out_or_says_nothing(nan_from_start: Taken) -> None:
    """A plain process runs the program's own files; elsewhere the captured ones run, the same for every commit."""
    refused = prismdbg("replay", nan_from_start.capsule, "--runtime", "local", "--bisect")
    assert refused.code == 128 and "whichever commit is checked out" in refused.err
    said = prismdbg("replay", nan_from_start.capsule, "--runtime", "plain", "--allow-writes", "--bisect")
    assert said.code == 1 and "as in the recorded run" in said.out, said.out + said.err


def test_a_plain_process_repeats_side_effects_only_where_it_may(nan_from_start: Taken) -> None:
    refused = prismdbg("replay", nan_from_start.capsule, "--runtime", "plain")
    assert refused.code == 4
    assert "--allow-writes" in refused.err
    verdict = replay(nan_from_start.capsule, "--allow-writes", runtime="plain")
    assert_identical(verdict, nan_from_start.capsule)
