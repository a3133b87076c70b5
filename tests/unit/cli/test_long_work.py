"""What long work shows: after a second, in a line that gives way; elsewhere than on a terminal rarely, in lines."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from capsules import IMAGE, make_capsule
from incident_run import write_run
from tiny_log import write_training

from prismdbg.cli import main
from prismdbg.cli.terminal import long_work
from prismdbg.cli.terminal.long_work import LongWork
from prismdbg.cli.terminal.progress_line import ProgressLine
from prismdbg.render import console
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.telemetry.sensor import Kind, Sensor
from prismdbg.telemetry.writer import TelemetryWriter, about


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def on(output: io.StringIO, clock: Clock, said: list[str], *, each: bool = False, whole: str = "") -> LongWork:
    return LongWork(ProgressLine(output, wanted=True), said.append, clock, each=each, whole=whole)


def test_on_a_terminal_it_begins_after_a_second_and_is_taken_back(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    said: list[str] = []
    terminal = Terminal()
    work = on(terminal, clock, said)
    for at_s, text in ((0.0, "a"), (0.9, "b"), (1.0, "c"), (1.1, "d"), (1.2, "e")):
        clock.now_s = 100.0 + at_s
        work.show(text)
    assert terminal.getvalue() == "\r\x1b[2Kc ... 1 s\r\x1b[2Ke ... 1 s"
    work.over()
    assert terminal.getvalue().endswith("e ... 1 s\r\x1b[2K") and said == []


def test_short_stages_of_a_long_wait_are_one_wait(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    said: list[str] = []
    terminal, pipe = Terminal(), io.StringIO()
    on_terminal, in_pipe = on(terminal, clock, said), on(pipe, clock, said)
    for second in range(80):
        for work in (on_terminal, in_pipe):
            work.show(f"stage {second}")
        clock.now_s += 0.5
        for work in (on_terminal, in_pipe):
            work.over()
    shown = terminal.getvalue().split("\r\x1b[2K")
    assert shown[:6] == ["", "stage 2 ... 1 s", "", "stage 3 ... 2 s", "", "stage 4 ... 2 s"]
    assert shown[-2:] == ["stage 79 ... 40 s", ""], "it is taken back at the end"
    assert said == ["stage 60, after 30 seconds"] and pipe.getvalue() == ""


def test_between_commands_that_are_typed_nobody_waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    work = on(terminal, clock, [], each=True)
    for at_s, text in ((0.0, "a"), (1.0, "b")):
        clock.now_s = 100.0 + at_s
        work.show(text)
    work.over()
    clock.now_s += 10
    work.show("another work, which has only begun")
    assert terminal.getvalue() == "\r\x1b[2Kb ... 1 s\r\x1b[2K"


def test_elsewhere_it_is_a_line_ever_more_rarely(clock: Clock) -> None:
    said: list[str] = []
    pipe = io.StringIO()
    work = on(pipe, clock, said)
    for second in range(300):
        clock.now_s = 100.0 + second
        work.show(f"replaying: collective {second} of 300")
    assert said == [
        "replaying: collective 30 of 300, after 30 seconds",
        "replaying: collective 60 of 300, after 60 seconds",
        "replaying: collective 120 of 300, after 2.0 minutes",
        "replaying: collective 240 of 300, after 4.0 minutes",
    ]
    work.over()
    assert pipe.getvalue() == ""


def test_a_stage_is_not_taken_for_what_takes_the_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many short stages follow each other, one could not tell how far it is but every half minute."""
    said: list[str] = []
    work = on(io.StringIO(), clock, said, whole="the emulation")
    for second in range(130):
        clock.now_s = 100.0 + second
        work.show(f"running rank {second}")
    assert said == [
        "running rank 30; the emulation has taken 30 seconds so far",
        "running rank 60; the emulation has taken 60 seconds so far",
        "running rank 90; the emulation has taken 1.5 minutes so far",
        "running rank 120; the emulation has taken 2.0 minutes so far",
    ]
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    work = on(terminal, clock, said, whole="the emulation")
    clock.now_s += 2
    work.show("running rank 7")
    assert terminal.getvalue() == "\r\x1b[2Krunning rank 7 ... 2 s of the emulation"


def test_what_is_printed_meanwhile_comes_after_the_line_is_taken_back(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    line = ProgressLine(terminal, wanted=True)
    work = LongWork(line, console.announce, clock)
    with console.giving_way(line.clear):
        work.show("begun")
        clock.now_s += 1
        work.show("half")
        console.announce("a warning")
        assert terminal.getvalue() == "\r\x1b[2Khalf ... 1 s\r\x1b[2K"
        clock.now_s += 1
        work.show("more")
        assert terminal.getvalue().endswith("more ... 2 s")
    console.announce("not of this work")
    assert terminal.getvalue().endswith("more ... 2 s")
    assert capsys.readouterr().err == "prismdbg: a warning\nprismdbg: not of this work\n"


@pytest.mark.parametrize(
    ("command", "first"),
    [("verify", "checking files: "), ("replay", "checking files: "), ("why", "reading the logs of ")],
)
def test_commands_show_it(command: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    onlooker = SimpleNamespace(show=told.append, over=lambda: None)
    monkeypatch.setattr(long_work, "LongWork", lambda *_, **__: onlooker)
    made = write_run(tmp_path / "run").path if command == "why" else make_capsule(tmp_path / "capsule", IMAGE).path
    (made / "stray").touch()  # of a capsule that is not whole nothing is started
    main.run([command, str(made)])
    assert told[0].startswith(first)


needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
LOGS, PART = "reading the logs of ranks: 1 of ", "writing the capsule: "
COLUMNS, STAGES = "reading the columns of the graph: 1 of ", "calculating stages: 2 of 2"
TELEMETRY = "reading files of telemetry: 1 of 1"


@pytest.mark.parametrize(
    ("line", "first", "then"),
    [
        ("diff KEPT KEPT --rank 0", LOGS, "comparing what was received: 6 of 6"),
        ("report RUN -o NEW.html", LOGS, "writing the sections of the page: 1 of 7"),
        ("export RUN --format timeline -o NEW.csv", LOGS, "writing the calls of ranks: 1 of "),
        ("export RUN --format chakra -o NEW", LOGS, "writing the traces of ranks: 1 of "),
        ("export RUN --format flight-recorder -o NEW", LOGS, "writing the dumps of ranks: 1 of "),
        ("inspect RUN --rank 0", PART, PART),
        ("inspect CAPSULE --secrets", "searching the raw memory: ", "searching the raw memory: "),
        ("open RUN --rank 0", PART, PART),
        ("open RUN", LOGS, LOGS),
        ("debug KEPT --rank 0 --plain --runtime plain", PART, PART),
        ("capture KEPT --rank 0 --origin start -o NEW", PART, PART),
        ("status RUN", LOGS, LOGS),
        ("list", "measuring runs and capsules: 1 of 3", "measuring runs and capsules: 3 of 3"),
        ("telemetry RUN", TELEMETRY, TELEMETRY),
        ("rm RUN KEPT --force", "measuring runs and capsules: 1 of 2", "removing folders: 2 of "),
        ("doctor", "checking this machine: 1 of ", "checking this machine: 15 of 15"),
        ("doctor --job RUN", "checking ranks: 1 of ", "checking ranks: 1 of "),
        pytest.param("gather RUN -o NEW", "copying RUN (1 of 1): ", "copying RUN (1 of 1): ", marks=needs_rsync),
        ("build CAPSULE --push oci:NEW", "packing: ", "hashing its contents: "),
        ("graph gpt -o NEW.npz --mesh pp=2,tp=2 --layers 2 --hidden 64", "calculating stages: 1 of 2", STAGES),
        ("graph simulate GRAPH.npz", COLUMNS, "preparing cohorts of ranks: "),
        ("graph critical-path GRAPH.npz", COLUMNS, "finding the critical path: 100% of the iteration"),
        ("graph what-if GRAPH.npz --slow-rank 0=2", COLUMNS, "preparing cohorts of ranks: "),
        ("graph export GRAPH.npz -o NEW.json", COLUMNS, "writing cohorts of ranks: 2 of 2"),
        ("graph export GRAPH.npz --format chakra -o NEW", COLUMNS, "writing the traces of ranks: 4 of 4"),
    ],
)
def test_commands_that_read_or_write_much_show_it(
    line: str, first: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(long_work, "LongWork", lambda *_, **__: SimpleNamespace(show=told.append, over=lambda: None))
    for name in ("RUN", "KEPT"):
        write_run(tmp_path / name)
    shutil.rmtree(tmp_path / "KEPT" / "ranks" / "0" / "memory")
    for segment in (tmp_path / "KEPT" / "ranks" / "0").glob("events.*"):
        segment.unlink()
    write_training(tmp_path / "KEPT" / "ranks" / "0")
    make_capsule(tmp_path / "CAPSULE", IMAGE)
    readings = TelemetryWriter(tmp_path / "RUN" / "telemetry", about(50_000_000))
    readings.reading(Sensor("host", "power", "mW", Kind.GAUGE), 1)
    readings.close()
    shape = GptShape(layers=2, hidden=64, microbatches=2, vocabulary=100)
    graph_file.save(gpt_job(Mesh.parse("pp=2,tp=2"), shape), tmp_path / "GRAPH.npz")
    monkeypatch.chdir(tmp_path)
    main.run(line.split())
    assert told[0].startswith(first)
    assert any(text.startswith(then) for text in told), told


def test_what_is_fetched_for_a_command_is_shown_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    told: list[str] = []
    monkeypatch.setattr(long_work, "LongWork", lambda *_, **__: SimpleNamespace(show=told.append, over=lambda: None))
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "cache"))
    address = f"file://{write_run(tmp_path / 'RUN').path}"
    assert main.run(["status", address]) == 0
    assert told[0].startswith(f"fetching {address}: ") and told[-1].startswith("reading the logs of ranks: ")
