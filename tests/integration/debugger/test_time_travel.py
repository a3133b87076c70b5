"""A captured rank forwards and backwards over the same places: the same bits each time, also after it was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chain import INCIDENTS, PARTS, Taken, recording
from jobs import forked
from seat import Seat, seat

from prismdbg.session import answers, notices
from prismdbg.session.session import Phase

pytestmark = [pytest.mark.job, pytest.mark.criu]

RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]


@pytest.fixture(scope="module")
def from_start(nan_early: Taken) -> Iterator[Seat]:
    with seat(nan_early.capsule, "local") as one:
        yield one


@pytest.fixture(scope="module", params=RUNTIMES)
def restored(captured_live: Callable[[str], Taken], request: pytest.FixtureRequest) -> Iterator[Seat]:
    with seat(captured_live("native").capsule, request.param, spacing_s=0.0) as one:
        yield one


def at_start(one: Seat) -> Seat:
    """As it began, whatever a test before has left."""
    one.debugger.do("delete")
    one.debugger.do("restart")
    one.told.clear()
    return one


def test_the_same_places_are_the_same_bits(restored: Seat) -> None:
    one = at_start(restored)
    compared = one.debugger.session.places.compared
    first: dict[str, tuple[str, ...]] = {}
    for _ in range(6):
        moment = one.at("next")
        first[moment] = one.bits()
    assert len(one.travel.checkpoints) > 1
    places = list(first)
    walk = [("rn", 4), ("rn 2", 2), ("next", 3), (f"goto {places[0]}", 0), (f"goto {places[5]}", 5), ("rn", 4)]
    for line, place in walk:
        assert one.at(line) == places[place], line
        assert one.bits() == first[places[place]], line
    assert one.unlike() == []
    assert one.debugger.session.places.compared - compared >= len(walk) - 1, "but one, where an image was taken"


def test_a_killed_rank_is_brought_back(restored: Seat) -> None:
    one = at_start(restored)
    here = one.at("next 3")
    bits = one.bits()
    pid = one.travel.running.rank_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    answer = one.debugger.do("next")
    assert isinstance(answer, answers.Arrived) and answer.phase is Phase.LOST
    assert any(isinstance(notice, notices.Lost) for notice in one.told)
    assert one.at(f"goto {here}") == here
    assert one.bits() == bits
    one.travel.running.kill()  # the place and all
    one.debugger.poll(10.0)
    assert one.debugger.session.phase is Phase.LOST
    one.debugger.do("restart")
    assert one.at(f"goto {here}") == here
    assert one.bits() == bits
    said = [text.partition(": ")[2] for text in one.spoken if "restoring" in text]
    assert said == ["restoring the checkpoint"], "once"


def test_a_bucket_of_ddp_that_is_older_than_the_capsule_is_known(restored: Seat) -> None:
    one = at_start(restored)
    one.debugger.do("trace on")
    one.debugger.do("break all_reduce")
    one.at("continue")
    found = one.debugger.do("who allocated out[0]")
    assert isinstance(found, answers.Allocated) and found.before and found.size_bytes > 0


def test_back_to_an_allocation_itself_and_a_checkpoint_outlives_the_trace(from_start: Seat) -> None:
    one = at_start(from_start)
    one.at("goto 2.1")
    assert not one.travel.client.ask("trace")["on"], "this is the first test to trace it"
    one.debugger.do("checkpoint")
    kept = max(kept.number for kept in one.travel.checkpoints)
    one.debugger.do("break allocation mm")
    seen = []
    for _ in range(4):
        one.at("continue")
        stop = one.debugger.session.stop
        assert stop is not None and len(stop.stops) == 1
        seen.append((str(stop.moment), stop.collective["block"], stop.collective["size_bytes"]))
    assert len(set(seen)) == 4
    for expected in reversed(seen[:-1]):
        one.at("reverse-continue")
        stop = one.debugger.session.stop
        assert stop is not None and stop.collective["kind"] == "allocation"
        assert (str(stop.moment), stop.collective["block"], stop.collective["size_bytes"]) == expected
        assert (stop.reason, len(stop.stops)) == ("stop", 1) and stop.event > 0
    one.at("step")
    assert one.at("reverse-step") == seen[0][0]
    assert one.at(f"restart {kept}") == "2.1"
    assert one.travel.client.ask("trace")["on"], "the image is of the traced rank"
    assert one.at("continue") == seen[0][0]
    assert one.unlike() == []


def test_back_to_where_the_nan_was_born(from_start: Seat, nan_early: Taken) -> None:
    """From the program's start, by stops and by search. From a checkpoint it is the line debugger that is tried."""
    one = at_start(from_start)
    one.at("continue")
    one.debugger.do("break nan")
    incident = one.at("reverse-continue")
    assert incident == str(nan_early.manifest.incident.moment)
    found = one.debugger.do("origin")
    assert isinstance(found, answers.Originated), found
    assert (found.what, str(found.seen_at), found.moment.step) == ("NaN", incident, 11)
    source = (INCIDENTS / "nan" / "train.py").read_text().splitlines()
    assert "self.scores[index]" in source[found.frames[0].line - 1]
    assert one.unlike() == []


PLAIN_DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    x = torch.ones(4, 8)
    if step == 2 and dist.get_rank() == 1:
        x = torch.log(-x)  # here
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""


def test_where_a_nan_was_born_in_a_job_whose_collectives_all_are_in_its_backward_passes(tmp_path: Path) -> None:
    script = tmp_path / "plain_ddp.py"
    script.write_text(PLAIN_DDP)
    with recording(forked(script, ranks=2), tmp_path, "--window", "all") as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
    with seat(job.capsules[0], "local") as one:
        for _ in range(2):  # from the program's start, then from an image inside of a backward pass
            assert one.at("goto 2.1") == "2.1"
            found = one.debugger.do("origin")
            assert isinstance(found, answers.Originated) and found.exact and found.born, found
            assert (found.op, found.moment.step) == ("aten::log", 2)
            assert "# here" in script.read_text().splitlines()[found.frames[0].line - 1]
            one.at("goto 1.1")
            one.debugger.do("checkpoint")


def test_a_step_back_is_the_event_before(from_start: Seat) -> None:
    """Events have their numbers again, and the values are the same."""
    one = at_start(from_start)
    one.at("goto 3.1")
    seen = []
    for _ in range(6):
        one.at("step")
        stop = one.debugger.session.stop
        assert stop is not None
        seen.append((stop.event, str(stop.moment), stop.collective["kind"], stop.collective["profiling_name"]))
    assert [event for event, *_ in seen] == [1, 2, 3, 4, 5, 6]
    for expected in reversed(seen[:-1]):
        one.at("reverse-step")
        stop = one.debugger.session.stop
        assert stop is not None
        call = stop.collective
        assert (stop.event, str(stop.moment), call["kind"], call["profiling_name"]) == expected
    assert one.at("reverse-step") == "3.1"
    one.at("step 6")
    one.at("reverse-step 4")
    stop = one.debugger.session.stop
    assert stop is not None
    assert (stop.event, str(stop.moment), stop.collective["kind"], stop.collective["profiling_name"]) == seen[1]
    assert one.at("reverse-step 2") == "3.1"
    assert one.at("next") == "3.2"
    assert one.unlike() == []


def test_a_module_is_finished_both_ways_between_collectives(from_start: Seat) -> None:
    """It ends at the first operator after it, and on the way back at the last before it; what encloses it is next."""
    one = at_start(from_start)

    def module(line: str) -> str:
        one.at(line)
        stop = one.debugger.session.stop
        assert stop is not None and stop.is_between
        return str(stop.collective["module"])

    one.at("goto 3.2")
    one.debugger.do("break allocation in blocks.1.mlp.up")
    assert module("continue").endswith("blocks.1.mlp.up")
    inside = one.debugger.session.moment
    one.debugger.do("delete")
    assert [module("finish").partition("blocks.1")[2] for _ in range(3)] == [".mlp", ".dropout", ""]
    one.at(f"goto {inside}")
    ways = [module("reverse-finish").partition("blocks.1")[2] for _ in range(2)]
    assert ways == [".norm2", ""] and one.debugger.session.moment < inside
    assert one.unlike() == []


def test_who_wrote_and_who_allocated(from_start: Seat) -> None:
    one = at_start(from_start)
    one.at("goto 5.1")
    wrote = one.debugger.do("who wrote ddp.module.head.weight")
    assert isinstance(wrote, answers.Wrote)
    assert wrote.exact and wrote.moment.step == 4 and "addcdiv" in wrote.op
    assert "optimizer.step()" in one.debugger.source(wrote.frames[0].line, 0)["lines"][0]
    one.at("goto 5.1")
    allocated = one.debugger.do("who allocated ddp.module.head.weight")
    assert isinstance(allocated, answers.Allocated)
    assert not allocated.before and allocated.moment.step == 0 and allocated.size_bytes >= 4 * 256 * 64


def test_memory_is_the_same_also_after_a_way_back(from_start: Seat) -> None:
    def live_bytes(one: Seat, line: str) -> int:
        answer = one.debugger.do(line)
        assert isinstance(answer, answers.Memory)
        return int(answer.answer.program_bytes if line == "memory" else answer.answer.size_bytes)

    one = at_start(from_start)
    one.at("goto 2.1")
    one.debugger.do("checkpoint")
    one.at("goto 4.1")
    first = live_bytes(one, "memory"), live_bytes(one, "memory peak")
    assert first[0] < first[1]
    one.at("goto 7.1")
    one.at("goto 4.1")
    assert (live_bytes(one, "memory"), live_bytes(one, "memory peak")) == first


def test_the_search_for_a_nan_goes_back_beyond_the_last_collective(tmp_path: Path) -> None:
    """It is born, then comes a barrier, a backward pass, another barrier, and only then is it sent."""
    script = PARTS / "nan_before_barrier.py"
    with recording(forked(script, ranks=2), tmp_path, "--window", "all") as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
    with seat(job.capsules[0], "local") as one:
        assert one.at("goto 4.3") == "4.3"
        found = one.debugger.do("origin")
        assert isinstance(found, answers.Originated) and found.exact and found.born, found
        assert (found.op, found.moment.step) == ("aten::mul.Tensor", 4)
        assert "# born here" in script.read_text().splitlines()[found.frames[0].line - 1]
        stands = one.debugger.stack()
        assert one.debugger.session.moment == found.moment
        assert stands.frames[stands.chosen] == found.frames[0]
