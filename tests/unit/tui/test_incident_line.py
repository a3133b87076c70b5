"""The line that the screen of a capsule leads with: what `why` says, and where one can go from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from capsules import MANIFEST, make_capsule
from played import PlayedRank, live_over, resized, screen_of_app, small_capsule, stopped, until
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.views import Phase
from shown import told
from textual.pilot import Pilot
from tiny_log import write_training

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.capsule.stacks import FROM_OUTSIDE, JobStacks, RankStacks, ThreadStack
from prismdbg.diagnosis.nonfinite import FirstNonfinite
from prismdbg.jobs.leading_finding import leading_finding
from prismdbg.jobs.storage.kept_stacks import keep_stacks
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment


def run_around(folder: Path, *, sends: int, same_process: bool = True) -> Capsule:
    """A run of two ranks whose rank `sends` sends a NaN at 3.1, and a capsule of rank 0 in it."""
    run = folder / "run"
    for rank in range(2):
        log = write_training(run / "ranks" / str(rank), rank=rank)
        flags = fmt.IssueFlag.HAS_FINGERPRINT | (fmt.IssueFlag.SENT_NONFINITE if rank == sends else 0)
        log.complete(log.issue(3, 1, flags=flags), flags=fmt.CompleteFlag.RECEIVED_NONFINITE)
        (run / "ranks" / str(rank) / "rank.json").write_text(json.dumps({"rank": rank, "world_size": 2, "pid": 1}))
        if not same_process and rank == 0:
            segment = bytearray(log.path.read_bytes())
            fmt.HEADER.pack_into(segment, 0, fmt.MAGIC, fmt.VERSION, 0, 0, 4711, 10**18 + 7, 10**9, log.segment_bytes)
            log.path.write_bytes(segment)
    (run / "run.json").write_text(json.dumps({"command": ["python"], "started_wall_ns": 10**18}))
    (run / "supervisor.json").write_text(json.dumps({"exit_code": 0, "ended_wall_ns": 10**18 + 10**10}))
    return make_capsule(run / "capsules" / "nan-rank0", MANIFEST)


def shown(app: PrismApp) -> str:
    return str(app.panes.incident.content)


def test_of_a_run_it_says_what_why_says(tmp_path: Path) -> None:
    found = leading_finding(run_around(tmp_path, sends=0))
    assert found is not None and str(found.moment) == "2.2", "where it is on this rank is the capsule's word"
    assert found.verdict.brief.startswith("rank 0 sent the first NaN or Inf · all_reduce")
    assert (found.verdict.aside, found.verdict.short_aside) == ("only received by rank 1", "received by 1")


def hang_around(folder: Path) -> Capsule:
    """A run of two ranks in which rank 0 waits at 3.1 for rank 1, whose stack was taken then; a capsule of rank 0."""
    run = RunFolder(folder / "run")
    for rank in range(2):
        log = write_training(run.ranks / str(rank), rank=rank)
        if rank == 0:
            log.issue(3, 1)
        (run.ranks / str(rank) / "rank.json").write_text(json.dumps({"rank": rank, "world_size": 2, "pid": 1}))
    run.run_json.write_text(json.dumps({"command": ["python"], "started_wall_ns": 10**18}))
    run.supervisor_json.write_text(json.dumps({"exit_code": 1, "ended_wall_ns": 10**18 + 10**10}))
    frames = (Frame(filename="/job/train.py", line=60, name="wait_for"),)
    thread = ThreadStack(name="MainThread", holds_gil=False, frames=frames)
    stacks = {1: RankStacks(rank=1, taken_by=FROM_OUTSIDE, threads=(thread,))}
    keep_stacks(run, JobStacks(taken_wall_ns=10**18, attempt=0, ranks=stacks))
    hang = Incident(kind=IncidentKind.HANG, text="rank 0 waited 11 s", moment=Moment(3, 1))
    return make_capsule(run.path / "capsules" / "hang-rank0", replace(MANIFEST, incident=hang))


def test_of_a_hang_it_says_who_never_came_and_where_that_rank_stands(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.incident.finding is not None, pilot)
        who = " ✕ 3.1  rank 1 never joined it: it is at train.py:60 in wait_for"
        assert shown(app) == f"{who}   rank 0 waits in all_reduce for 11.0 s"
        await resized(app, pilot, (80, 24))
        await until(lambda: shown(app) == who, pilot)

    screen_of_app(PrismApp(hang_around(tmp_path), "capsule"), part, (120, 36))


def test_a_run_of_another_process_is_not_asked(tmp_path: Path) -> None:
    found = leading_finding(run_around(tmp_path, sends=0, same_process=False))
    assert found is not None and found.verdict.kind == "incident"


def test_a_capsule_in_which_nothing_went_wrong_has_no_line(tmp_path: Path) -> None:
    asked = replace(MANIFEST, incident=Incident(kind=IncidentKind.REQUEST, text="captured on request"))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.recording is not None, pilot)
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert not app.panes.incident.display
        await pilot.press("I")
        (said,) = told(app)
        assert said == "no finding is about a collective of this rank: open the RUN to see all findings"

    screen_of_app(PrismApp(make_capsule(tmp_path / "capsule", asked), "capsule"), part)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_it_leads_to_the_incident_and_on(tmp_path: Path, size: tuple[int, int]) -> None:
    """Where the rank is not yet, t goes there; from elsewhere the cursor is brought back first."""
    capsule = small_capsule(tmp_path)
    rank = PlayedRank([stopped("2.2", 2, "until")])
    app = PrismApp(capsule, "capsule", live=live_over(capsule, rank))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and app.incident.finding, pilot)
        assert shown(app).startswith(" ✕ 2.2  nan: all_reduce in world")
        assert app.cursor == 0 and "I show it" in shown(app) and "O find its origin" in shown(app)
        await pilot.click(app.panes.incident, (shown(app).index("show it"), 0))
        await until(lambda: app.cursor == 5, pilot)
        assert "t go there" in shown(app) and "show it" not in shown(app)
        await pilot.press("t")
        await until(lambda: str(app.state.moment) == "2.2", pilot)
        await until(lambda: "go there" not in shown(app), pilot)
        await pilot.press("g", "I")
        assert app.cursor == 5
        await pilot.press("g")
        await pilot.click(app.panes.incident, (8, 0))
        await until(lambda: app.cursor == 5, pilot)

    screen_of_app(app, part, size)


@pytest.mark.parametrize(("moment", "row"), [(Moment(1), 2), (Moment(3), 5), (Moment(1, 2), 3), (Moment(3, 1), None)])
def test_a_finding_between_two_steps_leads_to_the_collective_after_it(
    tmp_path: Path, moment: Moment, row: int | None
) -> None:
    """As a slow step, or an exception in a step without a collective, which is after the last one. One in a collective
    that this rank did not record has none."""
    capsule = small_capsule(tmp_path)
    app = PrismApp(capsule, "capsule", live=live_over(capsule, PlayedRank([])))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and app.incident.finding, pilot)
        assert app.incident.finding is not None and app.cursor == 0
        app.incident.found(replace(app.incident.finding, moment=moment))
        assert ("I show it" in shown(app)) == (row is not None)
        await pilot.press("I")
        await until(lambda: app.cursor == (row or 0), pilot)
        assert bool(told(app)) == (row is None)
        ways = "t go just before it" if moment == Moment(3) else "t go there"
        assert row is None or ways in shown(app)

    screen_of_app(app, part, (120, 36))


def found_at(app: PrismApp, line: int, received_by: tuple[int, ...] = ()) -> None:
    """As if the log had this line of the program, and these ranks had received the NaN."""
    finding = app.incident.finding
    assert finding is not None and isinstance(finding.verdict, FirstNonfinite)
    call = finding.verdict.call
    known = replace(call.collective, frames=(Frame(filename="/job/train.py", line=line, name="main"),))
    received = tuple(replace(call, rank=rank) for rank in received_by) or finding.verdict.received
    app.incident.found(
        replace(finding, verdict=replace(finding.verdict, call=replace(call, collective=known), received=received))
    )


def test_at_80_columns_the_line_of_the_program_stays(tmp_path: Path) -> None:
    """With both keys behind it, of which the second one says less."""
    capsule = run_around(tmp_path, sends=0)
    app = PrismApp(capsule, "capsule", live=live_over(capsule, PlayedRank([])))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and app.incident.finding, pilot)
        found_at(app, line=7)
        brief = " ✕ 2.2  rank 0 sent the first NaN or Inf · {}train.py:7   I show it   O {}"
        await until(lambda: shown(app) == brief.format("", "origin"), pilot)
        await resized(app, pilot, (100, 30))
        await until(lambda: shown(app) == brief.format("all_reduce · ", "find its origin"), pilot)
        await pilot.click(app.panes.incident, (shown(app).index("show it"), 0))
        await until(lambda: app.cursor == 5, pilot)

    screen_of_app(app, part, (80, 24))


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (160, "   only received by ranks 0, 1 and 3   I show it   O find its origin"),
        (120, "   received by 0 1 3   I show it   O find its origin"),
        (113, "   received by 0 1 3   I show it   O origin"),
        (100, "   I show it   O find its origin"),
    ],
)
def test_who_only_received_it_is_shown_beside_the_keys(tmp_path: Path, width: int, expected: str) -> None:
    """At 120 columns the one excluded the other."""
    capsule = run_around(tmp_path, sends=0)
    app = PrismApp(capsule, "capsule", live=live_over(capsule, PlayedRank([])))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and app.incident.finding, pilot)
        found_at(app, line=61, received_by=(0, 1, 3))
        brief = " ✕ 2.2  rank 0 sent the first NaN or Inf · all_reduce · train.py:61"
        await until(lambda: shown(app) == brief + expected, pilot)
        await pilot.click(app.panes.incident, (shown(app).index("show it"), 0))
        await until(lambda: app.cursor == 5, pilot)

    screen_of_app(app, part, (width, 36))


def test_a_low_terminal_keeps_the_table(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.incident.finding is not None, pilot)
        await pilot.pause()
        assert not app.panes.incident.display and app.panes.collectives.size.height > 3

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part, (40, 10))


def test_a_finding_that_is_too_long_for_a_line_has_two(tmp_path: Path) -> None:
    """With the keys at the end of the second one; a low terminal has one line, which ends with a whole word."""
    text = (
        "OutOfMemoryError: tried to allocate 524288 bytes of memory with a cap of 67108864, in the step after this one"
    )
    raised = replace(MANIFEST, incident=replace(MANIFEST.incident, text=f"{text} at 2.2"))
    capsule = make_capsule(tmp_path / "capsule", raised)
    app = PrismApp(capsule, "capsule", live=live_over(capsule, PlayedRank([])))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and app.incident.finding, pilot)
        line = app.panes.incident
        assert line.size.height == 2 and text.split()[-1] in shown(app).splitlines()[1] and "…" not in shown(app)
        assert shown(app).count("2.2") == 1, "its moment is said once"
        await pilot.click(line, (shown(app).splitlines()[1].index("show it"), 1))
        await until(lambda: app.cursor == 5, pilot)
        await resized(app, pilot, (80, 20))
        await until(lambda: line.size.height == 1 and " …   " in shown(app), pilot)
        assert shown(app).partition(" …")[0].rpartition(" ")[2] in text.split()
        await resized(app, pilot, (160, 45))
        await until(lambda: text in shown(app) and "\n" not in shown(app), pilot)

    screen_of_app(app, part, (80, 24))


def test_keys_alone_have_no_second_line_and_none_is_there_without_its_word(tmp_path: Path) -> None:
    """A second line would cost each pane one, and come and go with the cursor. A key alone was an `I` behind the
    sentence."""
    text = "OutOfMemoryError: tried to allocate 524288 bytes of memory with a cap of 67108864, in the step after this"
    raised = replace(MANIFEST, incident=replace(MANIFEST.incident, text=text))
    capsule = make_capsule(tmp_path / "capsule", raised)
    app = PrismApp(capsule, "capsule", live=live_over(capsule, PlayedRank([])))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and "show it" in shown(app), pilot)
        sentence = shown(app).partition("   I ")[0]
        for keys in ("   I show it", ""):
            width = len(sentence) + max(len(keys), len("   I   O"))
            await resized(app, pilot, (width, 36))
            await until(lambda expected=sentence + keys: shown(app) == expected, pilot)  # type: ignore[misc]
            assert app.panes.incident.size.height == 1
        await resized(app, pilot, (len(sentence) + 12, 36))
        await until(lambda: "show it" in shown(app), pilot)
        await pilot.click(app.panes.incident, (len(sentence) + 3, 0))
        await until(lambda: app.cursor == 5, pilot)

    screen_of_app(app, part, (160, 36))
