"""A session forward and back over the same places, as rr is tried: each time the same to the last bit, and what the
rank printed cut back with the time. From the program's start, with images and without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chain import Taken, prismdbg
from seat import Seat, seat

from prismdbg.checkpoint import bundle
from prismdbg.errors import FacilityError
from prismdbg.session import answers, notices

pytestmark = [pytest.mark.job]

PLACES = ("2.1", "3.2", "4.1", "5.1", "6.2")


@pytest.fixture(scope="module")
def talker(nan_early: Taken, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 0 of the same run: it prints the loss at each step."""
    capsule = tmp_path_factory.mktemp("talker") / "capsule"
    run = nan_early.recording.run.path
    said = prismdbg("capture", run, "--rank", 0, "--origin", "start", "-o", capsule)
    assert said.code == 0, said.err
    return capsule


class Walk:
    """Remembers every place, and compares when it is come to again."""

    def __init__(self, one: Seat) -> None:
        self.one = one
        self._known: dict[str, tuple[tuple[str, ...], bytes]] = {}
        self.compared = 0

    def to(self, line: str, place: str) -> None:
        assert self.one.at(line) == place, line
        now = self.one.bits(), self.one.travel.output.newest()
        known = self._known.setdefault(place, now)
        assert now == known, line
        self.compared += known is not now

    @property
    def printed(self) -> bytes:
        return self.one.travel.output.newest()


@pytest.mark.parametrize(
    "runtime",
    [
        pytest.param("local", marks=pytest.mark.criu),
        pytest.param("docker", marks=[pytest.mark.criu, pytest.mark.docker]),
        "no images",
    ],
)
def test_every_way_to_a_place_leads_to_the_same_bits(
    talker: Path, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By single collectives, by places, back by single ones, traced and untraced, from checkpoints of one's own."""
    images = runtime != "no images"
    if not images:
        monkeypatch.setattr(bundle, "find", _none)
    with seat(talker, runtime if images else "local", spacing_s=0.3) as one:
        walk = Walk(one)
        for place in PLACES:
            walk.to(f"until {place}", place)
        assert re.findall(rb"step (\d) loss", walk.printed) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
        walk.to("reverse-next 3", "5.1")
        walk.to("goto 3.2", "3.2")
        walk.to("next", "4.1")
        if images:
            walk.to(f"restart {keep(one)}", "4.1")
        walk.to("reverse-next 4", "2.1")
        assert one.debugger.do("step 5").stop.event == 5  # type: ignore[union-attr]
        walk.to("goto 4.1", "4.1")  # traced from here on, the checkpoint taken again
        if images:
            walk.to(f"restart {keep(one)}", "4.1")
        one.debugger.do("reverse-step 3")
        walk.to("goto 5.1", "5.1")
        assert isinstance(one.debugger.do("memory"), answers.Memory)
        walk.to("goto 3.2", "3.2")
        walk.to("back", "5.1")
        one.debugger.do("restart 0")
        assert walk.printed == b""
        for place in PLACES:
            walk.to(f"goto {place}", place)
        assert one.unlike() == [] and walk.compared >= 11
        assert one.debugger.session.places.compared >= 10


def keep(one: Seat) -> int:
    """The number of a checkpoint here."""
    one.debugger.do("checkpoint")
    return next(told.number for told in reversed(one.told) if isinstance(told, notices.CheckpointMade) and told.asked)


def _none() -> None:
    raise FacilityError("no usable CRIU")
