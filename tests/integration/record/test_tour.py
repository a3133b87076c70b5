"""The tour of torch.distributed on 4 ranks: recorded it is the bare run, all is seen, each rank replays alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pytest
from bitwise import differences, load
from gloo_works import expected_works, is_refused
from jobs import Recorded, forked, plain_environment, record, replay, run
from tour_phases.refusals import NO_LISTS_IN_ALL_TO_ALL, expected_refusals

from prismdbg.jobs.injection import cache_dir
from prismdbg.model.collective import Collective, State

pytestmark = pytest.mark.job

HERE = Path(__file__).parents[1]
TOUR = HERE / "tour.py"
RANKS = range(4)
# phases that send what no two runs have in common: a pid, a temporary name, unset bytes that pad a shorter pickle
CHANCE = {"pids", "checkpoint", "all_gather_object", "gather_object"}
SIDE_BY_SIDE = {"lane"}  # issued by two threads at once, in either order


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the tour without prismdbg, and `<rank>.json`: what reached the backend."""
    out = tmp_path_factory.mktemp("bare")
    ended = run(
        forked(HERE / "witness.py", out, TOUR, ranks=len(RANKS)),
        out / "output.txt",
        env=plain_environment(TOUR_OUT=str(out)),
    )
    assert ended.code == 0, ended.output
    return out


class RecordedTour:
    def __init__(self, recorded: Recorded, out: Path) -> None:
        self.recorded, self.out = recorded, out


@cache
def _native_is_built() -> str:
    """The reason why it is not, or nothing."""
    from prismdbg.rank.native import build as native_build

    path, reason = native_build.find(cache_dir())
    return "" if path else reason


@pytest.fixture(scope="module")
def tour_recorded_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RecordedTour]:
    """One recorded tour for each recorder; made when first asked for."""

    @cache
    def made(recorder: str) -> RecordedTour:
        if recorder == "native" and (reason := _native_is_built()):
            pytest.skip(reason)
        out = tmp_path_factory.mktemp(recorder)
        done = record(
            forked(TOUR, ranks=len(RANKS)),
            out / "run",
            native=recorder == "native",
            env=plain_environment(TOUR_OUT=str(out)),
        )
        assert done.ended.code == 0, done.ended.output
        return RecordedTour(done, out)

    return made


@pytest.fixture(params=["python", "native"])
def tour(request: pytest.FixtureRequest, tour_recorded_by: Callable[[str], RecordedTour]) -> RecordedTour:
    return tour_recorded_by(request.param)


@pytest.mark.parametrize("rank", RANKS)
def test_torch_refuses_only_the_calls_that_this_version_lacks(bare: Path, rank: int) -> None:
    results = load(bare / f"{rank}.pt")["results"]
    assert {name: said for name, said in results.items() if isinstance(said, str)} == expected_refusals()


@pytest.mark.parametrize("rank", RANKS)
def test_recorded_results_are_those_of_the_bare_run(bare: Path, tour: RecordedTour, rank: int) -> None:
    without, recorded = load(bare / f"{rank}.pt"), load(tour.out / f"{rank}.pt")
    assert list(differences(without["results"], recorded["results"])) == []


@pytest.mark.parametrize("rank", RANKS)
def test_every_call_that_reaches_the_backend_is_in_the_log(bare: Path, tour: RecordedTour, rank: int) -> None:
    """Each work; each call, and those of the program's own thread in their order. The order of works is that in which
    gloo's threads begin, and a thread may have the number of one that has ended. What the callback of a future calls is
    in the program's own thread where the future was complete by then: chance, on a busy machine."""
    witnessed, log = json.loads((bare / f"{rank}.json").read_text()), tour.recorded.log(rank)
    works = Counter(name.removeprefix("sparse_") for name in witnessed["works"])
    assert works.total() > 200
    assert Counter(expected_works(log)) == works
    calls: dict[int, list[str]] = {}
    for call in log.collectives:
        calls.setdefault(call.thread_id, []).append(call.op)
    own, witnessed_own = (_in_runs(max(each, key=len)) for each in (calls.values(), witnessed["calls"]))
    assert [op for op, _ in own] == [op for op, _ in witnessed_own]
    differ = [(op, n - m) for (op, n), (_, m) in zip(own, witnessed_own, strict=True) if n != m]
    by_chance = sum(_by_callback(call) for call in log.collectives)
    assert {op for op, _ in differ} <= {"allreduce_"} and sum(abs(n) for _, n in differ) <= by_chance
    assert Counter(chain.from_iterable(calls.values())) == Counter(chain.from_iterable(witnessed["calls"]))


def _in_runs(ops: list[str]) -> list[tuple[str, int]]:
    return [(op, len([*run])) for op, run in groupby(ops)]


@pytest.mark.parametrize("rank", RANKS)
def test_every_record_is_whole(tour: RecordedTour, rank: int) -> None:
    log = tour.recorded.log(rank)
    without_lists = [*expected_refusals().values()].count(NO_LISTS_IN_ALL_TO_ALL)
    assert [c.op for c in log.collectives if is_refused(c)] == ["alltoall_"] * without_lists
    assert [note.data for note in log.notes if note.kind == "lost"] == []
    assert [c.record_id for c in log.collectives] == list(range(len(log.collectives)))
    made = [c for c in log.collectives if not is_refused(c)]
    assert [str(c) for c in made if c.state is not State.COMPLETED or c.time_completed_ns is None] == []
    assert [str(c) for c in log.collectives if not (_phase(c) or _on_autograds_thread(c, log.pid))] == []
    assert all(c.time_completed_ns >= c.time_created_ns for c in log.collectives if c.time_completed_ns)
    assert {c.group for c in log.collectives} <= log.groups.keys()
    assert all(rank in group.ranks for group in log.groups.values())


@pytest.mark.parametrize("rank", RANKS)
def test_nan_is_seen_where_it_is_sent_and_received(tour: RecordedTour, rank: int) -> None:
    (found,) = [c for c in tour.recorded.log(rank).collectives if _phase(c) == "nonfinite"]
    assert (found.sent_nonfinite, found.received_nonfinite) == (True, True)
    others = [c for c in tour.recorded.log(rank).collectives if _phase(c) == "all_reduce"]
    assert [(c.sent_nonfinite, c.received_nonfinite) for c in others] == [(False, False)]


@pytest.mark.parametrize("rank", RANKS)
def test_both_recorders_write_the_same(tour_recorded_by: Callable[[str], RecordedTour], rank: int) -> None:
    native, python = (
        {c.identity: _facts(c) for c in tour_recorded_by(recorder).recorded.log(rank).collectives}
        for recorder in ("native", "python")
    )
    assert native.keys() == python.keys()
    assert {i: (native[i], python[i]) for i in native if native[i] != python[i]} == {}


@pytest.mark.parametrize("rank", RANKS)
def test_a_rank_replays_alone(tour: RecordedTour, rank: int, tmp_path: Path) -> None:
    replayed = replay(tour.recorded.folder(rank), env={"TOUR_OUT": str(tmp_path)})
    log = tour.recorded.log(rank)
    assert replayed.divergence is None, replayed.divergence
    assert replayed.synthesized == []
    assert replayed.code == 0, replayed.output
    tally = replayed.tally
    assert (tally["compared"], tally["missing"]) == (len(log.collectives), 0)
    assert tally["fingerprints"] == sum(c.fingerprint is not None for c in log.collectives) > 100
    assert 1 <= tally["object_notes"] <= 8
    recorded = load(tour.out / f"{rank}.pt")
    assert list(differences(recorded, load(tmp_path / f"{rank}.pt"))) == []


def _on_autograds_thread(collective: Collective, main_thread: int) -> bool:
    """A backward pass that autograd runs on its own thread: the program's frames are on another one."""
    return collective.thread_id != main_thread and any("torch" in frame.filename for frame in collective.frames)


def _phase(collective: Collective) -> str:
    """The outermost function of the tour's phases that issued it."""
    names = [f.name for f in collective.frames if "tour" in f.filename and f.name not in ("main", "<module>")]
    return names[-1] if names else ""


def _facts(c: Collective) -> dict[str, Any]:
    """What two recordings of the same program have in common."""
    phase = _phase(c)
    return {
        "op": c.op,
        "moment": None if phase in SIDE_BY_SIDE else c.moment,
        "tensors": (c.inputs, c.outputs),
        "arguments": (c.group, c.root, c.tag, c.reduce_op, c.timeout_ms, c.is_async, c.is_p2p),
        "fingerprint": (c.fingerprint is not None) if phase in CHANCE else c.fingerprint,
        "nonfinite": (c.sent_nonfinite, c.received_nonfinite),
        "received_bytes": c.payload.size_bytes if c.payload and phase not in CHANCE else 0,
        "frames": [] if _by_callback(c) else [str(frame) for frame in c.frames if "tour" in frame.filename],
    }


def _by_callback(collective: Collective) -> bool:
    """PowerSGD issues what follows an all_reduce in a callback of its future: gloo's thread runs it, or, where the
    all_reduce is done already, the program's."""
    return any("powerSGD_hook" in frame.filename for frame in collective.frames)
