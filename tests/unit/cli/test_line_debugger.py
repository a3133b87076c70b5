"""The line debugger over a rank that is played by a list of answers."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from prismdbg.cli.terminal.line_history import MAX_LINE_BYTES, MAX_LINES, LineHistory, history_file
from prismdbg.cli.terminal.repl import run_repl
from prismdbg.cli.terminal.typed_lines import from_pipe, from_terminal
from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.model.collective import Frame
from prismdbg.protocol.client import AgentClient, AgentError
from prismdbg.render.stop_text import peers_text, source_lines, where_text
from prismdbg.render.value_text import bars, value_text
from prismdbg.session.line import VERBS
from tests.only_forward import OnlyForward

CALL: dict[str, Any] = {"profiling_name": "all_reduce", "process_group": "0", "group_title": "world"}
CALL |= {"inputs": ["float32[4]"], "outputs": []}
TALLY = {"compared": 2, "fingerprints": 1, "synthesized": 0, "missing": 3}
FRAMES = [
    {"filename": "/v/site-packages/torch/c10d.py", "line": 9, "name": "all_reduce"},
    {"filename": "/job/train.py", "line": 7, "name": "main"},
]


def stopped(moment: str, reason: str = "next") -> dict[str, Any]:
    return {"event": "stopped", "reason": reason, "moment": moment, "collective": CALL}


FINISHED = {"event": "finished", "code": 0, "moment": "2.1", "tally": {**TALLY, "missing": 0}}


class PlayedRank:
    """Answers like an agent; each `resume` releases the next batch of events. None in a batch: the rank is gone."""

    def __init__(self, *batches: list[dict[str, Any] | None]) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._batches = deque(batches)
        self._events: deque[dict[str, Any] | None] = deque()
        self._started = False
        self.answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "progress": self._progress,
            "resume": self._resume,
            "stack": lambda _: {"frames": FRAMES},
            "source": self._source,
            "evaluate": lambda _: {"value": {"kind": "scalar", "type": "int", "value": 42}},
            "pause": lambda _: {},
            "stops": lambda _: {},
        }

    def ask(self, verb: str, *, timeout_s: float = 30.0, **arguments: Any) -> dict[str, Any]:
        self.asked.append((verb, arguments))
        if verb == "quit":
            raise RankLost("the connection closed")
        if verb not in self.answers:
            raise AgentError(f"unknown request to the agent: {verb!r}", hint="verbs: ...")
        return self.answers[verb](arguments)

    def next_event(self, timeout_s: float | None, what: str) -> dict[str, Any]:
        if not self._events:
            raise WaitTimeout(f"waited for {what}")
        event = self._events.popleft()
        if event is None:
            raise RankLost("the connection closed while waiting")
        return event

    def _progress(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"moment": "0.0", "stopped": None if self._started else "start", "number": 1, "tally": TALLY}

    def _resume(self, _: dict[str, Any]) -> dict[str, Any]:
        self._started = True
        self._events.extend(self._batches.popleft() if self._batches else [])
        return {}

    def _source(self, arguments: dict[str, Any]) -> dict[str, Any]:
        lines = ["before", "dist.all_reduce(x)", "after"]
        return {"filename": "/job/train.py", "function": "main", "line": 7, "first": 6, "lines": lines}


def debugger_of(rank: PlayedRank, bound_s: float = 0.05, **options: Any) -> Callable[[Any], Debugger]:
    travel = OnlyForward(cast(AgentClient, rank))
    settings = Settings(bound_s=bound_s, checkpoints=False)
    return lambda tell: Debugger(travel, tell, settings=settings, **options)


def drive(
    rank: PlayedRank,
    *lines: str,
    echo: bool = False,
    patient: bool = False,
    strict: bool = False,
    program: Any = None,
    **options: Any,
) -> tuple[int, str]:
    output = io.StringIO()
    if program is not None:
        options["how_it_ended"] = program.how_it_ended
    make = debugger_of(rank, **options)
    code = run_repl(make, lines, output, program=program, echo=echo, patient=patient, strict=strict)
    return code, output.getvalue()


def test_a_walk_to_the_end() -> None:
    rank = PlayedRank([stopped("0.1")], [stopped("0.4")], [FINISHED])
    code, text = drive(rank, "next", "n 3", "p out", "continue", "info", "next", echo=True, end_record=9)
    assert code == 0
    assert [arguments for verb, arguments in rank.asked if verb == "resume"] == [
        {"count": 1, "end": 9, "stops": "apply"},
        {"count": 3, "end": 9, "stops": "apply"},
        {"end": 9, "stops": "apply"},
    ]
    assert "stopped at 0.1 (next): all_reduce on group world: float32[4]" in text
    assert "->     7  dist.all_reduce(x)" in text
    assert "(prismdbg) p out\n42\n" in text
    assert text.count("the program ended with 0 after 2.1") == 2
    assert "error: the program has ended" in text
    assert rank.asked[-1][0] != "quit"


class NamelessRank(PlayedRank):
    """Knows no name `foo`. `says`: the column that it tells instead of the right one."""

    def __init__(self, *batches: list[dict[str, Any] | None], says: int | None = -2) -> None:
        super().__init__(*batches)
        self.answers["evaluate"] = self.answers["difference"] = self._unknown
        self._says = says

    def _unknown(self, asked: dict[str, Any]) -> dict[str, Any]:
        column = asked["expression"].index("foo") if self._says == -2 else self._says
        raise AgentError("unknown name 'foo'", hint="name another", kind="ExpressionError", column=column)


@pytest.mark.parametrize("verb", ["print", "diff"])
def test_an_error_that_the_rank_finds_in_an_expression_has_its_caret(verb: str) -> None:
    _, text = drive(NamelessRank([stopped("0.1")]), "next", f"{verb} max(out, foo)")
    said = text[text.index("error:") :].splitlines()
    assert said[:4] == ["error: unknown name 'foo'", "    max(out, foo)", "             ^", "  try: name another"]
    assert said[1].index("foo") == said[2].index("^")


@pytest.mark.parametrize("says", [None, -1, 14, 1 << 40])
def test_an_error_without_a_place_in_the_expression_has_no_caret(says: int | None) -> None:
    _, text = drive(NamelessRank([stopped("0.1")], says=says), "next", "print max(out, foo)")
    assert text[text.index("error:") :].splitlines()[:2] == ["error: unknown name 'foo'", "  try: name another"]


def test_a_stop_that_is_told_twice_is_one() -> None:
    told_again = {**stopped("0.0", "start"), "number": 1}
    code, text = drive(PlayedRank([told_again, stopped("0.1")]), "next", "p x")
    assert code == 0 and text.count("stopped at") == 2 and text.endswith("42\n")


def test_looks_from_the_programs_own_frame() -> None:
    rank = PlayedRank([stopped("0.1")])
    drive(rank, "next", "p x", "down", "p x")
    looks = [arguments["frame"] for verb, arguments in rank.asked if verb == "evaluate"]
    assert looks == [1, 0]


def test_an_empty_line_repeats_next_and_nothing_else() -> None:
    rank = PlayedRank([stopped("0.1")], [stopped("0.2")], [stopped("0.3")])
    drive(rank, "", "n", "", "help", "")
    assert [verb for verb, _ in rank.asked].count("resume") == 2


def test_the_rank_is_ended_at_the_end_of_input_and_at_quit() -> None:
    for lines in ((), ("quit", "next")):
        rank = PlayedRank([stopped("0.1")])
        assert drive(rank, *lines)[0] == 0
        assert [verb for verb, _ in rank.asked] == ["progress", "quit"]


def test_mistakes_are_said_and_cost_nothing() -> None:
    rank = PlayedRank([stopped("0.1")])
    code, text = drive(rank, "dance", "next", "p x.__class__", "peers", "until 0.1")
    assert code == 0
    for words in (
        "unknown command 'dance'",
        "private",
        "unknown request to the agent: 'peers'",
        "is before the current moment",
    ):
        assert words in text


DIVERGED = {
    "event": "diverged",
    "moment": "0.4",
    "expected": None,
    "actual": {**CALL, "frames": FRAMES},
    "differences": [{"field": "call", "expected": "2 recorded collectives still expected", "structural": True}],
    "history": [],
}


def test_a_divergence_tells_its_story_with_source() -> None:
    rank = PlayedRank([DIVERGED, stopped("0.4", "diverged")])
    code, text = drive(rank, "continue")
    assert code == 5
    assert "diverged at 0.4: all_reduce is not in the record" in text
    assert "->     7  dist.all_reduce(x)" in text


def test_other_parameters_are_a_divergence_too() -> None:
    state = {"event": "state", "moment": "2.0", "expected": "aa", "actual": "bb", "equal": False}
    code, text = drive(PlayedRank([state, FINISHED]), "c")
    assert code == 5 and "aa recorded, bb now" in text


def test_a_rank_that_vanishes() -> None:
    class Program:
        def new_output(self) -> str:
            return "Segmentation fault\n"

        def how_it_ended(self) -> str:
            return "its process ended with 139"

    code, text = drive(PlayedRank([None]), "c", "next", "quit", program=Program())
    assert code == 6
    assert "| Segmentation fault" in text and "the rank is lost: its process ended with 139" in text
    assert "error: the rank is lost" in text


def test_running_out_of_time_ends_it_or_gives_the_prompt_back() -> None:
    with pytest.raises(WaitTimeout, match=r"next collective after 0\.0"):
        drive(PlayedRank([]), "next", "info")
    _, text = drive(PlayedRank([]), "next", "where", patient=True)
    assert "error: waited" in text and "error: the rank is running" in text


def test_progress_extends_the_time() -> None:
    rank = PlayedRank([])
    moments = iter(f"0.{n}" for n in range(1, 1000))
    looks = 0

    def progress(_: dict[str, Any]) -> dict[str, Any]:
        nonlocal looks
        looks += 1
        if looks == 1:
            return {"moment": "0.0", "stopped": "start", "tally": TALLY}
        if looks == 20:
            rank._events.append(stopped("0.30"))
        return {"moment": next(moments), "stopped": None, "tally": TALLY}

    rank.answers["progress"] = progress
    code, text = drive(rank, "next", bound_s=0.0)
    assert code == 0 and looks == 20 and "stopped at 0.30" in text


class Interrupted(PlayedRank):
    interrupts = 1

    def next_event(self, timeout_s: float | None, what: str) -> dict[str, Any]:
        if self.interrupts and ("resume", {"stops": "apply"}) in self.asked:
            self.interrupts -= 1
            signal.raise_signal(signal.SIGINT)
            raise WaitTimeout(f"waited for {what}")
        return super().next_event(timeout_s, what)


def test_an_interrupt_ends_lines_of_a_file() -> None:
    """The next one would be carried out where the rank happens to be."""
    rank = Interrupted([stopped("0.9", "paused")])
    with pytest.raises(KeyboardInterrupt):
        drive(rank, "c", "p out", strict=True, bound_s=5.0)
    asked = [verb for verb, _ in rank.asked]
    assert "evaluate" not in asked and "pause" not in asked and asked[-1] == "quit"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_asks_the_rank_to_stop_and_a_second_one_lets_it_run() -> None:
    rank = Interrupted([stopped("0.9", "paused")])
    _, text = drive(rank, "c", bound_s=5.0)
    assert ("pause", {}) in rank.asked and "stopped at 0.9 (paused)" in text
    rank = Interrupted([stopped("0.9", "paused")])
    rank.interrupts = 2
    _, text = drive(rank, "c", "info", "c", bound_s=5.0)
    assert "the rank is still running" in text and "running after 0.0" in text and "stopped at 0.9 (paused)" in text
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_comes_from_the_rank_cannot_steer_the_terminal() -> None:
    rank = PlayedRank([stopped("0.1")])
    rank.answers["evaluate"] = lambda _: {"value": {"kind": "object", "text": "\x1b]0;owned\x07"}}
    assert "\x1b" not in drive(rank, "next", "p x")[1]


def test_an_output_that_knows_no_blocks() -> None:
    rank = PlayedRank([stopped("0.1")])
    rank.answers["evaluate"] = lambda _: {"value": {"kind": "object", "text": "▁▂▃"}}
    raw = io.BytesIO()
    run_repl(debugger_of(rank), ["next", "p x"], io.TextIOWrapper(raw, encoding="ascii"))
    assert b"???" in raw.getvalue()


def test_help_lists_all_or_one() -> None:
    _, text = drive(PlayedRank(), "help", "help until", "help dance")
    assert text.count("until MOMENT (u)") == 2 and "unknown command 'dance'" in text


def test_lines_from_a_pipe_until_its_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"next\nprint \xff\nquit")
    os.close(writing)
    assert list(from_pipe(reading, 5)) == ["next", "print \ufffd", "quit"]
    os.close(reading)


def test_a_pipe_with_nobody_behind_it_is_given_up() -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(WaitTimeout, match="command on standard input"):
            list(from_pipe(reading, 0.01))
    finally:
        os.close(reading)
        os.close(writing)


TERMINAL = """
import sys
from pathlib import Path
from prismdbg.cli.terminal.line_history import LineHistory
from prismdbg.cli.terminal.typed_lines import from_terminal
history = LineHistory(Path(sys.argv[1])) if sys.argv[1:] else None
for line in from_terminal("(ready) ", ["next", "print"], history):
    print("got", repr(line), flush=True)
"""


def test_a_terminal_completes_and_keeps_history() -> None:
    at_terminal(
        None,
        (rb"\(ready\) $", b"ne\t3\n"),
        (rb"got 'next 3'\s+\(ready\) $", b"\x1b[A\n"),
        (rb"got 'next 3'\s+\(ready\) $", b"\x04"),
    )


def test_lines_of_the_session_before_are_in_the_history(tmp_path: Path) -> None:
    kept = tmp_path / "state" / "history"
    at_terminal(kept, (rb"\(ready\) $", b"print loss\n"), (rb"got 'print loss'\s+\(ready\) $", b"\x04"))
    at_terminal(kept, (rb"\(ready\) $", b"\x1b[A\n"), (rb"got 'print loss'\s+\(ready\) $", b"\x04"))
    assert kept.read_text() == "print loss\n" * 2
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def at_terminal(history: Path | None, *talks: tuple[bytes, bytes]) -> None:
    main, replica = pty.openpty()
    command = [sys.executable, "-c", TERMINAL, *([str(history)] if history is not None else [])]
    child = subprocess.Popen(command, stdin=replica, stdout=replica, stderr=replica, **OWN_TTY)
    os.close(replica)
    try:
        for awaited, answer in talks:
            talk(main, awaited, answer)
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.wait(20)
        os.close(main)


def test_the_history_is_bounded_and_private(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("".join(f"print {number}\n" for number in range(MAX_LINES + 5)))
    file.chmod(0o644)
    history = LineHistory(file)
    assert history.read()[0] == "print 5"
    for line in ("next", "", "  ", "x" * (MAX_LINE_BYTES + 1)):
        history.add(line)
    assert len(file.read_text().splitlines()) == MAX_LINES + 1 and history.read()[-1] == "next"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_history_that_cannot_be_kept_disturbs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = LineHistory(tmp_path / "file" / "history")
    history.add("next")
    assert history.read() == []


def test_the_history_is_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "prismdbg" / "debug-history"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert history_file() == tmp_path / ".local" / "state" / "prismdbg" / "debug-history"


def test_an_interrupt_drops_the_line_that_is_being_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    typed: deque[str | type[BaseException]] = deque(["next", KeyboardInterrupt, "info", EOFError])

    def read(_: str) -> str:
        line = typed.popleft()
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", read)
    assert list(from_terminal("", [])) == ["next", "info"]


OWN_TTY: dict[str, Any] = {"start_new_session": True, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}


def talk(terminal: int, awaited: bytes, answer: bytes) -> None:
    """Types `answer` once the screen ends with `awaited`; what readline writes to steer the terminal does not count."""
    seen = b""
    while not re.search(awaited, re.sub(rb"\x1b\[[?0-9;]*[a-zA-Z]", b"", seen)):
        assert select.select([terminal], [], [], 20)[0], (awaited, seen)
        seen += os.read(terminal, 4096)
    os.write(terminal, answer)


def test_a_tensor_as_text() -> None:
    stats = {"min": 0.0, "max": 2.0, "mean": 1.0, "std": None, "nan": 1, "inf": 0}
    text = value_text(
        {
            "kind": "tensor",
            "shape": [2, 2],
            "dtype": "float32",
            "device": "cpu",
            "requires_grad": True,
            "stats": stats,
            "histogram": {"low": 0.0, "high": 2.0, "counts": [1, 0, 2]},
            "values": [[0.0, "nan"], [1.0, 2.0]],
            "slice": "[:2, :2]",
            "sharded": {"shape": [4, 2], "placements": ["S(0)"]},
            "hidden": ["step"],
        }
    ).splitlines()
    assert text[0] == "float32[2, 2] cpu, requires grad"
    assert "this rank's part of [4, 2], S(0)" in text[1]
    assert "min 0  max 2  mean 1  std -  nan 1  inf 0" in text[2]
    assert text[3].split() == ["0", "▄", "█", "2"]
    assert text[5].split() == ["[", "0", "nan]"]
    assert "local.step" in text[-1]


def test_nested_values_are_indented() -> None:
    inner = {"kind": "mapping", "type": "dict", "length": 40, "items": [["'k'", {"kind": "more"}]]}
    assert value_text({"kind": "sequence", "type": "list", "length": 1, "items": [inner]}).splitlines() == [
        "list of 1",
        "  [0] dict of 40",
        "      ['k'] ...",
        "      ... 39 more",
    ]


def test_of_a_single_number_there_is_no_histogram() -> None:
    stats = {"min": 3.5, "max": 3.5, "mean": 3.5, "std": 0.0, "nan": 0, "inf": 0}
    loss = {"kind": "tensor", "shape": [], "dtype": "float32", "device": "cpu", "requires_grad": True, "slice": ""}
    loss |= {"stats": stats, "histogram": {"low": 3.5, "high": 3.5, "counts": [1, 0]}, "values": 3.5}
    assert value_text(loss).splitlines() == ["float32[] cpu, requires grad", "  3.5"]
    assert "min 3.5" in value_text(loss, only_stats=True)


def test_every_bin_that_holds_anything_is_seen() -> None:
    assert bars([1, 10**9, 0]) == "▁█ "
    assert bars([0, 0]) == "  "


def test_the_stack_leaves_out_libraries_but_counts_them() -> None:
    library = Frame("/v/site-packages/x.py", 1, "f")
    own = Frame("/job/train.py", 7, "main")
    text = where_text([library, library, library, own, library], 3)
    assert [line.split()[:2] for line in text.splitlines()] == [
        ["...", "1"],
        ["->", "3"],
        ["...", "2"],
        ["0", "/v/site-packages/x.py:1"],
    ]


def test_peers_say_what_is_not_known() -> None:
    members = [
        {"rank": 4, "group_rank": 0, "role": "this rank", "arrived": "here"},
        {"rank": 5, "group_rank": 1, "role": "recorded", "arrived": "unknown"},
    ]
    text = peers_text({"title": "dp", "size": 2, "members": members, "recorded_ns": 1_500_000})
    assert text.startswith("group dp of 2") and text.endswith("in the recorded run it took 1.500 ms")
    assert "unknown" in text


def test_an_answer_that_cannot_be_shown_is_a_defect_and_the_session_goes_on() -> None:
    rank = PlayedRank([stopped("0.1")], [FINISHED])
    rank.answers["evaluate"] = lambda _: {"value": {"nonsense": 1}}
    code, text = drive(rank, "next", "p out", "continue")
    assert "error: KeyError: 'kind'" in text and "bug in prismdbg" in text
    assert "the program ended with 0" in text and code == 0


def test_what_was_asked_is_said_at_the_stop() -> None:
    rank = PlayedRank([stopped("0.3", "until")], [stopped("0.4", "until") | {"stops": [2]}])
    _, text = drive(rank, "next-step", "until 9")
    assert "stopped at 0.3 (next-step)" in text and "stopped at 0.4 (breakpoint 2)" in text


def test_a_stop_says_what_it_is_also_when_it_is_gone() -> None:
    """As gdb does: the number alone is what one would have to look up."""
    hit = {"event": "hit", "moment": "0.2", "stop": 3, "collective": CALL}
    failed = {"event": "stop_failed", "moment": "0.2", "stop": 2, "error": "no name 'lost'"}
    rank = PlayedRank(
        [hit, failed, stopped("0.4", "stop") | {"stops": [1, 2]}], [stopped("0.5", "stop") | {"stops": [9]}]
    )
    lines = (
        "tbreak all_reduce if bytes > 4",
        "break 0.4",
        "break on 0",
        "log-only 3",
        "continue",
        "info",
        "stops",
        "c",
    )
    _, text = drive(rank, *lines)
    both = "breakpoint 1: all_reduce if bytes > 4, breakpoint 2: 0.4"
    assert f"stopped at 0.4 ({both}): all_reduce on group world" in text
    assert f"stopped       {both}" in text
    assert "0.2 breakpoint 3: on 0; hit by all_reduce on group world" in text
    assert "0.2 breakpoint 2: 0.4; its condition cannot be evaluated, the rank continues: no name 'lost'" in text
    assert "\n   1  " not in text, "it was to hit once"
    assert "stopped at 0.5 (breakpoint 9)" in text, "none of ours"


def test_locals_are_the_frames_alone() -> None:
    rank = PlayedRank([stopped("0.1")])
    names = [{"from": "local", "name": "loss", "type": "float", "text": "3.5"}]
    names += [{"from": "stop", "name": "bytes", "type": "int", "text": "4096"}]
    rank.answers["locals"] = lambda _: {"locals": names}
    assert drive(rank, "next", "locals")[1].endswith("\nloss  3.5\n")
    rank = PlayedRank([stopped("0.1")])
    rank.answers["locals"] = lambda _: {"locals": names[1:]}
    assert drive(rank, "next", "locals")[1].endswith("\nno names here\n")


def test_help_has_a_space_between_a_verb_and_its_meaning() -> None:
    _, text = drive(PlayedRank(), "help")
    for verb, usage in VERBS.items():
        (line,) = (line for line in text.splitlines() if line.endswith(usage.meaning))
        assert line == f"{'':<32}{usage.meaning}" or (line.startswith(verb) and f" {usage.meaning}" in line)


def test_a_line_behind_the_file_is_not_a_missing_file() -> None:
    rank = PlayedRank([stopped("0.1")])
    rank.answers["source"] = lambda _: {"filename": "/job/train.py", "line": 7, "first": 9, "lines": [], "length": 8}
    assert "/job/train.py has 8 lines\n" in drive(rank, "next", "list 99999")[1]
    older = {"filename": "/job/train.py", "line": 7, "first": 9, "lines": []}
    assert "or the file has no such line" in next(source_lines(older))
    assert next(source_lines({**older, "length": 0})).startswith("no source for")


def test_a_long_mapping_is_a_line_for_each_of_the_first_keys() -> None:
    tensor = {"kind": "object", "text": "float32[2]"}
    item = {"kind": "mapping", "type": "dict", "length": 2, "items": [["'step'", tensor], ["'exp_avg'", tensor]]}
    items = [[f"{number}: float32[2]", item] for number in range(32)]
    lines = value_text({"kind": "mapping", "type": "dict", "length": 37, "items": items}).splitlines()
    assert lines[:2] == ["dict of 37", "  [0: float32[2]] dict of 2"]
    assert (len(lines), lines[-1]) == (22, "  ... 17 more")
