"""A picture of the first screen in a file, from the command line, of each kind of screen."""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from capsules import make_capsule
from incident_run import write_run
from played import PlayedRank, large_job, live_over, small_capsule, stopped
from prismdbg_tui.overview.app import OverviewApp
from prismdbg_tui.screens.pictured_app import PicturedApp
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.live import LiveRank
from prismdbg_tui.session.sidecar import beside
from prismdbg_tui.still_picture import StillPicture
from shown import text_of
from textual.app import ComposeResult
from textual.widgets import Static

from prismdbg.capsule import layout
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import FacilityError, WaitTimeout
from prismdbg.model.moment import Moment
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.stored import keep_comparison


class Patient:
    """Of an application: `looked_often` is set once it was asked more often than one looks at a settled screen."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.looked_often, self._looks = threading.Event(), 0
        super().__init__(*arguments, **options)

    @property
    def is_settled(self) -> bool:
        self._looks += 1
        if self._looks == 30:
            self.looked_often.set()
        return super().is_settled


def texts(picture: Path) -> str:
    return text_of(picture.read_text("utf-8"))


def opened(what: Path, picture: Path, *options: str) -> int:
    return main.run(["open", str(what), "--picture", str(picture), *options])


def test_a_capsule_with_its_incident(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_capsule(tmp_path / "nan")
    assert opened(tmp_path / "nan", tmp_path / "out.svg") == ExitCode.OK
    shown = texts(tmp_path / "out.svg")
    assert "prismdbg open nan" in shown and "all_reduce in world" in shown and "read-only" in shown
    said = capsys.readouterr()
    assert said.out == "" and said.err == f"{tmp_path}/out.svg: 120x36\n"
    assert {path.name for path in tmp_path.iterdir()} == {"nan", "out.svg"}


def test_the_cursor_is_at_the_moment_that_is_asked_for(tmp_path: Path) -> None:
    make_capsule(tmp_path / "nan", steps=60)
    assert opened(tmp_path / "nan", tmp_path / "out.svg", "--at", "1.1") == ExitCode.OK
    assert "▲ 1.1" in texts(tmp_path / "out.svg")


@pytest.mark.parametrize("size", ["80x24", "200x60"])
def test_the_size_is_that_of_a_terminal(tmp_path: Path, size: str) -> None:
    make_capsule(tmp_path / "nan")
    assert opened(tmp_path / "nan", tmp_path / "out.svg", "--size", size) == ExitCode.OK
    _, _, width, _ = ElementTree.parse(tmp_path / "out.svg").getroot().attrib["viewBox"].split()
    assert float(width) == pytest.approx(int(size.partition("x")[0]) * 8.4 + 24)


def test_all_ranks_of_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    assert opened(tmp_path / "run", tmp_path / "out.svg") == ExitCode.OK
    assert "rank 1 raised at 1.1: ValueError" in texts(tmp_path / "out.svg")


def test_the_configurations_of_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "s" / "trials").mkdir(parents=True)
    (tmp_path / "s" / "sweep.json").write_text("{}")
    keep_comparison(tmp_path / "s", [Result(name="tp=8", values={}, state=State.LEFT_OUT, why="predicted 40 ms")], 0)
    assert opened(tmp_path / "s", tmp_path / "out.svg") == ExitCode.OK
    assert "left out: predicted 40 ms" in texts(tmp_path / "out.svg")


def test_a_moment_needs_a_recorded_run_or_one_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s" / "trials").mkdir(parents=True)
    (tmp_path / "s" / "sweep.json").write_text("{}")
    keep_comparison(tmp_path / "s", [Result(name="tp=8", values={}, state=State.LEFT_OUT, why="predicted 40 ms")], 0)
    assert opened(tmp_path / "s", tmp_path / "out.svg", "--at", "1.1") == ExitCode.USAGE
    assert "--at needs a recorded run or one rank" in capsys.readouterr().err
    write_run(tmp_path / "run")
    assert opened(tmp_path / "run", tmp_path / "out.svg", "--at", "0.1") == ExitCode.OK
    assert "opens ranks at 0.1" in texts(tmp_path / "out.svg")


def test_all_ranks_of_a_simulated_job_with_their_critical_path(tmp_path: Path) -> None:
    StillPicture(tmp_path / "out.svg", (160, 45), "overview").take(OverviewApp(large_job()), 60)
    shown = texts(tmp_path / "out.svg")
    assert "7786 head" in shown and "searching" not in shown


def test_a_rank_that_went_where_it_was_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not before: at first it stands at its start, too."""
    capsule = small_capsule(tmp_path)
    rank = live_over(capsule, PlayedRank([stopped("1.2", 4, "goto")]), first_lines=("goto 1.2",))
    app = PrismApp(capsule, "capsule", live=rank)
    try:
        StillPicture(tmp_path / "out.svg", (120, 36), "debug").take(app, 60)
    finally:
        rank.close()
        assert rank.wait(10)
    assert app.state.moment == Moment(1, 2)
    assert "stopped" in texts(tmp_path / "out.svg") and "line_of_frame_1()" in texts(tmp_path / "out.svg")
    assert capsys.readouterr().err.endswith("out.svg: 120x36, stopped at 1.2\n")


def test_what_is_still_read_is_waited_for(tmp_path: Path) -> None:
    class Slow(Patient, PicturedApp[None]):
        def compose(self) -> ComposeResult:
            yield Static("reading ...")

        def on_mount(self) -> None:
            self.run_worker(self._read, thread=True)

        def _read(self) -> None:
            assert self.looked_often.wait(60)
            self.call_from_thread(self.query_one(Static).update, "all is there")

    StillPicture(tmp_path / "out.svg", (40, 10), "slow").take(Slow(), 60)
    assert "all is there" in texts(tmp_path / "out.svg")


def test_what_the_rank_is_told_at_first_is_waited_for(tmp_path: Path) -> None:

    class Slow(Patient, PrismApp): ...

    capsule, played = small_capsule(tmp_path), PlayedRank([stopped("1.1", 3)], [stopped("1.2", 4)])
    rank = live_over(capsule, played, first_lines=("next", "print 1", "next"))
    app = Slow(capsule, "capsule", live=rank)
    answer = played.answers["evaluate"]
    played.answers["evaluate"] = lambda asked: answer(asked) if app.looked_often.wait(60) else {}
    try:
        StillPicture(tmp_path / "out.svg", (120, 36), "debug").take(app, 60)
    finally:
        rank.close()
        assert rank.wait(10)
    assert app.state.moment == Moment(1, 2) and "stopped at 1.2" in texts(tmp_path / "out.svg")


def test_what_cannot_be_shown_is_an_error_and_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(make_capsule(tmp_path / "nan").path / layout.LOG)
    assert opened(tmp_path / "nan", tmp_path / "out.svg") == ExitCode.BAD_CAPSULE
    assert "error:" in capsys.readouterr().err and not (tmp_path / "out.svg").exists()


def test_a_rank_that_does_not_start_is_an_error_and_no_picture(tmp_path: Path) -> None:
    @contextmanager
    def opens(_: object) -> Iterator[None]:
        yield from ()
        raise FacilityError("no container runtime", hint="install Docker")

    rank = LiveRank(opens, lambda *_: pytest.fail("there is no rank to debug"))
    with pytest.raises(FacilityError, match="no container runtime"):
        StillPicture(tmp_path / "out.svg", (120, 36), "debug").take(
            PrismApp(small_capsule(tmp_path), "capsule", live=rank), 60
        )
    assert rank.wait(10) and not (tmp_path / "out.svg").exists()


def test_a_rank_that_does_nothing_more_is_an_error(tmp_path: Path) -> None:
    """It was told to go on, and nothing comes of it."""
    capsule = small_capsule(tmp_path)
    rank = live_over(capsule, PlayedRank([]), first_lines=("next",))
    with pytest.raises(WaitTimeout, match=r"not complete after 0\.5 s: next"):
        StillPicture(tmp_path / "out.svg", (120, 36), "debug").take(PrismApp(capsule, "capsule", live=rank), 0.5)
    rank.close()
    assert rank.wait(20) and not (tmp_path / "out.svg").exists()


def test_nothing_is_kept_beside_the_capsule(tmp_path: Path) -> None:
    """What is there is shown."""
    make_capsule(tmp_path / "nan")
    kept = beside(tmp_path / "nan")
    kept.write_text('{"version": 1, "notes": {"1.1": ""}, "lines": null, "panes": [], "history": []}')
    before = kept.stat()
    assert opened(tmp_path / "nan", tmp_path / "out.svg", "--at", "1.1") == ExitCode.OK
    assert "⚑1.1 " in texts(tmp_path / "out.svg") and kept.stat() == before


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert (librsvg2-bin) is not installed")
def test_pixels(tmp_path: Path) -> None:
    make_capsule(tmp_path / "nan")
    assert opened(tmp_path / "nan", tmp_path / "out.png", "--size", "80x24") == ExitCode.OK
    data = (tmp_path / "out.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n") and struct.unpack(">II", data[16:24]) == (1392, 952)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--picture", "out.jpg"), ExitCode.USAGE, "'out.jpg' ends in none of .svg, .png"),
        (("--picture", "there.svg"), ExitCode.USAGE, "there.svg already exists"),
        (("--picture", "nowhere/out.svg"), ExitCode.USAGE, "no such directory: nowhere"),
        (("--picture", "/proc/out.svg"), ExitCode.USAGE, "/proc/out.svg cannot be written"),
        (("--picture", "out.svg", "--web"), ExitCode.USAGE, "--picture cannot be combined with --web"),
        (("--picture", "out.svg", "--size", "120"), ExitCode.USAGE, "'120' is not a size from 40x10 to 500x200"),
        (("--picture", "out.svg", "--size", "9999x20"), ExitCode.USAGE, "is not a size"),
        (("--size", "120x36"), ExitCode.USAGE, "--size is the size of a picture"),
        (("--picture", "out.png"), ExitCode.LACKING, "rsvg-convert, which this machine lacks"),
    ],
)
def test_what_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    code: ExitCode,
    says: str,
) -> None:
    make_capsule(tmp_path / "nan")
    (tmp_path / "there.svg").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main.run(["open", "nan", *options]) == code
    said = capsys.readouterr().err
    assert "error: " in said and says in said and "try: " in said, said
    assert {path.name for path in tmp_path.iterdir()} == {"nan", "there.svg"}
    assert (tmp_path / "there.svg").read_text() == "mine"
