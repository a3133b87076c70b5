"""Incidents become capsules by themselves; the rank replayed alone comes to the same end, bit for bit."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from chain import INCIDENTS, PARTS, Recording, Taken, altered, assert_identical, prismdbg, recording, replay, span
from jobs import EXAMPLES, forked
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.model.moment import Moment

pytestmark = [pytest.mark.job, pytest.mark.criu]

RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]
NAN_STEP = 39  # the 40th of the training: 39 optimizer steps are complete


@pytest.fixture(params=["image", "start"])
def nan(request: pytest.FixtureRequest) -> Taken:
    names = {"image": "nan_with_checkpoints", "start": "nan_from_start"}
    taken = request.getfixturevalue(names[request.param])
    assert isinstance(taken, Taken)
    assert taken.manifest.origin == request.param
    return taken


def test_a_nan_is_named_and_the_job_goes_on(nan: Taken) -> None:
    assert nan.ended.code == 0
    assert "step 44 loss nan" in nan.ended.output
    incident = nan.manifest.incident
    assert (incident.kind, nan.manifest.rank) == (IncidentKind.NAN, 2)
    assert incident.moment == nan.manifest.moment_b == Moment(NAN_STEP, 1)
    assert "rank 2 sends the first NaN or Inf: all_reduce in group world" in incident.text
    assert "incidents/nan/train.py:" in incident.text
    verified = prismdbg("verify", nan.capsule)
    assert verified.code == 0, verified.out


def test_a_nan_capsule_of_an_image_begins_at_a_checkpoint(nan_with_checkpoints: Taken) -> None:
    manifest = nan_with_checkpoints.manifest
    costs = nan_with_checkpoints.recording.supervisor["checkpoints"]
    # how many rounds there are before the job ends depends on the machine; but all ranks have one turn in each
    turns = [cost["rank"] for cost in costs]
    assert set(turns[:4]) == {"0", "1", "2", "3"}
    assert all(len(set(turns[at : at + 4])) == len(turns[at : at + 4]) for at in range(0, len(turns), 4))
    assert nan_with_checkpoints.recording.supervisor["problems"] == []
    assert Moment(5) <= manifest.moment_a < manifest.moment_b
    assert manifest.contains_raw_memory
    assert all(cost["paused_ns"] < 15e9 and cost["bytes"] > 50 << 20 for cost in costs)


def test_a_nan_capsule_from_the_start_holds_no_memory(nan_from_start: Taken) -> None:
    manifest = nan_from_start.manifest
    assert not manifest.contains_raw_memory
    assert not any(name.startswith("checkpoint/") for name in manifest.files)
    assert span(nan_from_start.capsule)[0].record_id == 0


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_rank_is_replayed_to_its_nan(nan: Taken, runtime: str) -> None:
    verdict = replay(nan.capsule, runtime=runtime)
    assert_identical(verdict, nan.capsule)
    assert verdict["moment"] == str(Moment(NAN_STEP, 1))
    assert any("the NaN occurs again, bit for bit" in note for note in verdict["notes"])


def test_an_exception_is_raised_again(exception_with_checkpoints: Taken) -> None:
    assert exception_with_checkpoints.ended.code == 1
    capsule, manifest = exception_with_checkpoints.capsule, exception_with_checkpoints.manifest
    assert (manifest.rank, manifest.incident.kind, manifest.origin) == (1, IncidentKind.EXCEPTION, Origin.IMAGE)
    assert manifest.incident.text.startswith("UnicodeDecodeError: 'utf-8' codec can't decode byte 0x86")
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert f"{verdict['raised']['type']}: {verdict['raised']['text']}" == manifest.incident.text
    assert "UnicodeDecodeError" in verdict["output"]
    shown = prismdbg("replay", capsule, "--runtime", "local")
    assert shown.code == 0
    # torch puts the rank in front of each line where its own excepthook is in place
    assert re.search(r"^  \| (\[rank1\]: )?UnicodeDecodeError: 'utf-8' codec", shown.err, re.MULTILINE), shown.err


def test_at_an_exception_all_frames_of_its_traceback_can_be_chosen(exception_with_checkpoints: Taken) -> None:
    """The data loader of this job is a generator, which has ended by then and no longer knows the training loop."""
    typed = "break exception\ncontinue\n" + "up\n" * 7 + "quit\n"
    said = prismdbg("debug", exception_with_checkpoints.capsule, "--plain", "--runtime", "local", typed=typed)
    chosen = said.out.partition("(prismdbg) up")[2]
    assert re.search(r"/data\.py:\d+ in endless\n", chosen), said.out
    assert re.search(r"exception/train\.py:\d+ in main\n", chosen), said.out
    assert re.search(r"exception/train\.py:\d+ in <module>\n", chosen), said.out


def test_a_rank_that_is_killed(tmp_path: Path) -> None:
    job_line = forked(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", "100000", ranks=2)
    with recording(job_line, tmp_path, "--checkpoint-every", 10) as job:
        job.wait_for(lambda: _checkpointed(job, 0) and _checkpointed(job, 1), 120, "checkpoints of the ranks")
        job.wait_for_step(1, job.step(1) + 2)
        os.kill(job.pid(1), signal.SIGKILL)
        ended = job.end()
        assert ended.code == 1
        assert "rank 1 died without an error message: killed by SIGKILL" in ended.output
        assert "rank 1 died without an error message: killed by SIGKILL" in prismdbg("why", job.run.path).out
        states = {state["name"]: state for state in prismdbg("status", job.run.path, "--json").json["ranks"]}
        assert states["1"]["state"] == "died"
        assert states["1"]["steps"] > 5 and not states["1"]["lost"]
        found = {Capsule.open(path).manifest.incident.kind: path for path in job.capsules}
    capsule = found[IncidentKind.LOST]
    assert Capsule.open(capsule).manifest.rank == 1
    assert Capsule.open(capsule).rank()["died_with"] == 128 + signal.SIGKILL
    verdict = replay(capsule, code=7)  # nothing in a replay kills it
    assert verdict["outcome"] == "inconclusive" and verdict["story"] is None
    assert "did not happen again: the replay is identical up to the end moment" in verdict["why"]
    assert "the recorded rank died: SIGKILL (exit code 137)" in verdict["why"]
    assert verdict["strength"]["collectives"] == verdict["tally"]["compared"] > 0
    assert verdict["tally"]["missing"] == 0
    unanswered = [r for r in span(capsule) if r.time_completed_ns is None]
    assert verdict["tally"]["synthesized"] == len(unanswered) <= 2


def _checkpointed(job: Recording, rank: int) -> bool:
    return any(cost["rank"] == str(rank) for cost in job.supervisor.get("checkpoints", []))


@pytest.fixture(scope="module", params=["native", "python"])
def hung(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Recording, dict[int, Path]]]:
    """Rank 2's data runs out; captured while the others hang. The job is ended at once."""
    home = tmp_path_factory.mktemp("hang")
    script = INCIDENTS / "hang" / "train.py"
    options = ["--trigger", "hang=5s", *(["--python-kernels"] if request.param == "python" else [])]
    with recording(forked(script, "--out", home / "out", ranks=4), home, *options) as job:
        job.wait_for(lambda: len(job.capsules) == 2, 120, "both sides of the hang to be captured")
        assert job.stop().code != 0
        yield job, {Capsule.open(path).manifest.rank: path for path in job.capsules}


def test_both_sides_of_a_hang_are_captured(hung: tuple[Recording, dict[int, Path]]) -> None:
    job, capsules = hung
    (incident,) = job.supervisor["incidents"]
    assert incident["kind"] == "hang"
    assert sorted(capsules) == sorted(incident["ranks"]) and 2 in capsules and len(capsules) == 2
    assert incident["capsules"] == [str(path) for path in job.capsules]
    assert job.supervisor["problems"] == []
    for path in capsules.values():
        manifest = Capsule.open(path).manifest
        assert (manifest.incident.kind, manifest.origin) == (IncidentKind.HANG, Origin.IMAGE)


def test_the_line_where_the_culprit_stands_is_told_everywhere(
    hung: tuple[Recording, dict[int, Path]], tmp_path: Path
) -> None:
    """By the incident, by `why` also after the job was interrupted, and by the capsule of the rank that waits."""
    job, capsules = hung
    stands = f"{INCIDENTS / 'hang' / 'train.py'}:{_line_of('time.sleep(0.2)')} in wait_for"
    (incident,) = job.supervisor["incidents"]
    assert incident["text"].endswith(f"rank 2 is at {stands}")
    said = prismdbg("why", job.run.path).out
    assert said.startswith("certain: ranks 0, 1 and 3 wait in all_reduce") and said.count("certain:") == 1, said
    assert f"rank 2 never joined it: it is at {stands}; its last call: rank 2 at 19.2" in said
    packed = tmp_path / "waiting.tar.zst"
    waiting = next(path for rank, path in capsules.items() if rank != 2)
    assert prismdbg("pack", waiting, "-o", packed).code == 0
    for path in (*capsules.values(), packed):
        assert f"rank 2 was at {stands}" in prismdbg("why", path).out
    for path in (capsules[2], packed):
        assert f"rank 2 was at {stands}" in prismdbg("inspect", path).out


def _line_of(words: str) -> int:
    script = INCIDENTS / "hang" / "train.py"
    return next(n for n, line in enumerate(script.read_text().splitlines(), start=1) if words in line)


def test_the_culprit_is_shown_where_it_stands_and_waited_for_only_when_told(
    hung: tuple[Recording, dict[int, Path]],
) -> None:
    _, capsules = hung
    typed = "where\nnext\nprint loss\ncontinue\nwhere\nrestart\n"
    said = prismdbg("debug", capsules[2], "--plain", "--runtime", "local", typed=typed)
    at = rf"train.py:{_line_of('time.sleep(0.2)')} in wait_for"
    before, where, following, printed, waited, there, restarted = said.out.split("(prismdbg) ")
    assert re.search(rf"rank 2 was captured outside a collective, at .*{at}", before)
    assert all(re.search(rf"-> +0  .*{at}", shown) for shown in (before, where))
    for answer in (following, printed):
        assert "error: rank 2 was captured outside a collective" in answer
        assert "(none was recorded)" in answer
    assert "hangs again, as recorded: no further collective within" in waited and said.code == 0
    assert re.search(rf"-> +0  .*{at}", there) and "captured outside a collective" in restarted
    short = prismdbg("debug", capsules[2], "--plain", "--runtime", "local", "--timeout", 3, typed="continue\n")
    assert short.code == 124
    assert "waited 3 s for the rank's next collective after" in short.err
    assert "to see whether it hangs again" in short.err


def test_the_peers_of_a_hang_are_told_apart(hung: tuple[Recording, dict[int, Path]]) -> None:
    _, capsules = hung
    waiting = next(path for rank, path in capsules.items() if rank != 2)
    said = prismdbg("debug", waiting, "--plain", "--runtime", "local", typed="peers\n").out
    never = r"^ +2 +2 +not answered +never joined, last at 19\.2 .*train\.py:\d+ in main$"
    assert re.search(never, said, re.MULTILINE), said
    assert len(re.findall(r"waits$", said, re.MULTILINE)) == 3, said


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_hang_without_a_past_is_inconclusive_and_it_is_said(
    hung: tuple[Recording, dict[int, Path]], runtime: str
) -> None:
    _, capsules = hung
    (waiting,) = (path for rank, path in capsules.items() if rank != 2)
    assert Capsule.open(waiting).rank()["in_flight"]
    verdict = replay(waiting, runtime=runtime, code=7)
    assert (verdict["outcome"], verdict["tally"]["compared"]) == ("inconclusive", 0)
    assert verdict["tally"]["synthesized"] == len(verdict["synthesized"]) > 0
    assert verdict["tally"]["missing"] == 0
    shown = prismdbg("replay", waiting, "--runtime", runtime)
    assert shown.code == 7
    assert shown.out.startswith("inconclusive: no collective was compared")
    assert re.search(
        "^the collective at .*, in which the rank hung, got a synthesized answer:", shown.err, re.MULTILINE
    )
    assert re.search(r"synthesized, because not recorded: \d+ answers?; later values depend on them", shown.err), (
        shown.err
    )


def test_the_rank_that_never_came_can_be_looked_at(hung: tuple[Recording, dict[int, Path]]) -> None:
    _, capsules = hung
    assert prismdbg("verify", capsules[2]).code == 0
    verdict = replay(capsules[2], code=7)
    assert verdict["outcome"] == "inconclusive"
    assert "the rank issued no collective between the start and the end moment" in verdict["summary"]


def test_a_hang_with_a_past_is_compared_up_to_where_it_hangs(tmp_path: Path) -> None:
    script = INCIDENTS / "hang" / "train.py"
    options = ("--checkpoint-every", 5, "--trigger", "hang=5s")  # of ten steps
    # Steps of half a second: checkpoints keep up with them.
    large = ("--size", "1m", "--batch", 32, "--parts", 0.3, 0.037)
    job_line = forked(script, "--out", tmp_path / "out", *large, ranks=2)
    with recording(job_line, tmp_path, *options) as job:
        job.wait_for(lambda: len(job.capsules) == 2, 180, "both sides of the hang to be captured")
        assert job.stop().code != 0
        made = {Capsule.open(path).manifest.rank: path for path in job.capsules}
    never_came = made.pop(1)
    (waiting,) = made.values()
    for path in (never_came, waiting):
        manifest = Capsule.open(path).manifest
        assert manifest.origin is Origin.IMAGE and manifest.moment_a.step + 1 < manifest.moment_b.step
        assert prismdbg("verify", path).code == 0
        verdict = replay(path)
        assert (verdict["outcome"], verdict["moment"]) == ("identical", str(manifest.moment_b)), verdict
        assert verdict["tally"]["compared"] == len(span(path)) > 1 and verdict["strength"]["whole_steps"] >= 1
        ends = "it hangs again" if path == never_came else "in which the rank hung, got a synthesized answer"
        assert any(ends in note for note in verdict["notes"]), verdict["notes"]
    _hangs_again_in_the_debugger(never_came, tmp_path)


def _hangs_again_in_the_debugger(capsule: Path, folder: Path) -> None:
    """With the frame where it hangs, long before `--timeout`, and one goes on from there; so does a script."""
    end, at = Capsule.open(capsule).manifest.moment_b, rf"train\.py:{_line_of('time.sleep(0.2)')} in wait_for"
    typed = "where\ncontinue\nwhere\nreverse-next\nnext\n"
    said = prismdbg("debug", capsule, "--plain", "--runtime", "local", typed=typed)
    assert said.code == 0, said.err
    _, first, hangs, where, back, again = said.out.split("(prismdbg) ")
    assert re.search(rf"^where it hung in the recording; .*\n(.*\n)*->.*{at}", first, re.MULTILINE), first
    for told in (hangs, again):
        assert re.search(rf"^everything recorded was replayed, and rank 1 hung here, at .*{at}", told, re.MULTILINE)
        assert re.search(
            rf"^hangs again, as recorded: no further collective within .* after {end};", told, re.MULTILINE
        )
    assert re.search(rf"->.*{at}", where) and "as recorded" not in where
    assert f"stopped at {end} (reverse-next)" in back
    script = folder / "script.yaml"
    script.write_text("expect:\n  - {at: end, that: step > 0}\n")
    report = prismdbg("replay", capsule, "--runtime", "local", "--script", script)
    assert report.code == 0 and "it hangs again" in report.err, (report.out, report.err)


@pytest.fixture(scope="module")
def died(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a rank that ends itself without a word."""
    seen_alive = {"STEP_TAKES_S": "0.2"}  # by the supervisor: of a death that it did not see, the code is not known
    line = forked(PARTS / "incidents.py", "exit", ranks=2)
    home = tmp_path_factory.mktemp("died")
    with recording(line, home, "--window", "all", env={**os.environ, **seen_alive}) as job:
        assert job.end().code == 1
        (capsule,) = job.capsules
    return capsule


def test_a_death_counts_only_where_it_was_recorded(died: Path) -> None:
    """The other tests of this capsule: an end of the replayed rank elsewhere, or of something else, is another."""
    assert Capsule.open(died).manifest.incident.kind is IncidentKind.LOST
    verdict = replay(died)
    assert_identical(verdict, died)
    assert "the rank died here, as it did when it was recorded" in verdict["notes"]


OTHER_ENDS: dict[str, tuple[dict[str, str], int, str, str]] = {
    "earlier": ({"GOES_WRONG_AT": "9"}, 6, "rank lost", "earlier than the recorded process"),
    "never": (
        {"GOES_WRONG_AT": "99"}, 7, "inconclusive", "issued a further collective; the recorded rank died: exit code 3"
    ),
    "code": (
        {"GOES_WRONG_WITH": "4"}, 5, "diverged", "not as the recorded process did: exit code 4, not exit code 3"
    ),
    "signal": ({"GOES_WRONG_WITH": "SIGSEGV"}, 5, "diverged", "SIGSEGV (exit code 139), not exit code 3"),
    "thread": (
        {"THREAD_RAISES": "here only"}, 7, "inconclusive", "that the recording does not have: ValueError: here only"
    ),
}  # fmt: skip


@pytest.mark.parametrize("end", OTHER_ENDS)
def test_another_end_is_not_the_recorded_death(died: Path, end: str, tmp_path: Path) -> None:
    changed, code, outcome, why = OTHER_ENDS[end]
    environment = {**Capsule.open(died).rank()["environment"], "STEP_TAKES_S": "0", **changed}
    verdict = replay(altered(died, tmp_path / "other", environment=environment), code=code)
    assert verdict["outcome"] == outcome and why in verdict["summary"], verdict
    assert "the rank died here, as it did when it was recorded" not in verdict["notes"]


@pytest.mark.parametrize(
    ("ends", "code", "judgement"), [("3", 1, "recurs"), ("0", 7, "inconclusive"), ("SIGSEGV", 1, "another failure")]
)
def test_an_edited_program_that_dies(died: Path, ends: str, code: int, judgement: str, tmp_path: Path) -> None:
    text = (PARTS / "incidents.py").read_text()
    (tmp_path / "incidents.py").write_text(text.replace('"GOES_WRONG_WITH", "3"', f'"NEVER", "{ends}"'))
    said = prismdbg("replay", died, "--runtime", "local", "--source", tmp_path, "--json")
    assert (said.code, said.json["fix"]["judgement"]) == (code, judgement), said.out


def test_a_death_of_which_the_capsule_does_not_say_how(died: Path, tmp_path: Path) -> None:
    """As capsules were before this was kept."""
    old = altered(died, tmp_path / "old", died_with=None)
    verdict = replay(old)
    assert_identical(verdict, old)
    assert "the rank died here, and how the recorded rank died is unknown" in verdict["notes"]


def test_a_signal_to_the_supervisor_captures_every_rank(tmp_path: Path) -> None:
    job_line = forked(PARTS / "until_told.py", tmp_path / "told", 0.02, ranks=2)
    with recording(job_line, tmp_path) as job:
        job.wait_for_step(1, 3)
        os.kill(job.job.process.pid, signal.SIGUSR1)
        job.wait_for(lambda: len(job.capsules) == 2, 120, "a capsule of each rank")
        job.wait_for_step(1, job.step(1) + 3)
        job.stop()
        capsules = {Capsule.open(path).manifest.rank: path for path in job.capsules}
    assert sorted(capsules) == [0, 1]
    for capsule in capsules.values():
        assert Capsule.open(capsule).manifest.incident.kind is IncidentKind.SIGNAL
        assert len({record.moment.step for record in span(capsule)}) >= 1
        assert_identical(replay(capsule), capsule)


def test_a_signal_freezes_what_was_kept_before_it(tmp_path: Path) -> None:
    job_line = forked(PARTS / "until_told.py", tmp_path / "told", 0.02, ranks=2)
    with recording(job_line, tmp_path, "--checkpoint-every", 20) as job:
        job.wait_for(lambda: _checkpointed(job, 0) and _checkpointed(job, 1), 120, "checkpoints of the ranks")
        os.kill(job.job.process.pid, signal.SIGUSR1)
        job.wait_for(lambda: len(job.capsules) == 2, 120, "a capsule of each rank")
        job.stop()
        capsules = job.capsules
        kinds = {incident["kind"] for incident in job.supervisor["incidents"]}
    assert kinds == {"signal"}, "the end that was asked for is no incident"
    for capsule in capsules:
        manifest = Capsule.open(capsule).manifest
        assert (manifest.incident.kind, manifest.origin) == (IncidentKind.SIGNAL, Origin.IMAGE)
        assert_identical(replay(capsule), capsule)


def test_an_allocation_that_fails(tmp_path: Path) -> None:
    with recording(forked(PARTS / "incidents.py", "oom", ranks=2), tmp_path, "--window", "all") as job:
        assert job.end().code == 1
        (capsule,) = job.capsules
    manifest = Capsule.open(capsule).manifest
    assert (manifest.rank, manifest.incident.kind) == (1, IncidentKind.OUT_OF_MEMORY)
    assert "can't allocate memory" in manifest.incident.text
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert verdict["raised"]["incident"] == "oom"


def test_a_step_that_takes_too_long(tmp_path: Path) -> None:
    options = ("--window", "all", "--trigger", "slow=20")
    with recording(forked(PARTS / "incidents.py", "slow", ranks=2), tmp_path, *options) as job:
        assert job.end().code == 0
        (capsule,) = job.capsules
    manifest = Capsule.open(capsule).manifest
    assert (manifest.incident.kind, manifest.moment_b.step) == (IncidentKind.SLOW, 14)
    assert "step 14 took 4." in manifest.incident.text
    assert_identical(replay(capsule), capsule)


def test_nothing_is_an_incident_where_nothing_happens(tmp_path: Path) -> None:
    triggers = "exception,nan,hang=60s,slow=1000,oom,signal"
    job_line = forked(PARTS / "incidents.py", "not at all", ranks=2)
    with recording(job_line, tmp_path, "--window", "all", "--trigger", triggers) as job:
        assert job.end().code == 0
        wait_for(lambda: "exit_code" in job.supervisor, 10, "the supervisor's last word")
        assert (job.supervisor["incidents"], job.supervisor["problems"], job.capsules) == ([], [], [])
