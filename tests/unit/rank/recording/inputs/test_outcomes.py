"""What is noted of the programs that a rank starts, and that they give it what they gave."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prismdbg.rank.program.children import Command, Outcome
from prismdbg.rank.program.isolation import ours
from prismdbg.rank.recording.inputs import outcomes
from prismdbg.rank.recording.inputs.outcomes import Outcomes
from tests.unit.child_programs import failure, recorded, unwrapped


def shell(line: str, **given: Any) -> Any:
    return subprocess.run(line, shell=True, **given)


def ends(action: Callable[[], Any]) -> list[dict[str, Any]]:
    """What is noted of the ends."""
    told = {"code", "out", "err", "cut"}
    return [{name: value for name, value in note.data.items() if name in told} for note in recorded(action)][1::2]


def test_a_program_has_a_note_of_its_start_and_one_of_its_end(tmp_path: Path) -> None:
    start, end = (n.data for n in recorded(lambda: subprocess.check_output(["printf", "a\\377"], cwd=tmp_path)))
    named = {"moment": "0.0", "arguments": ["printf", "a\\377"], "folder": str(tmp_path), "nth": 1}
    assert start == named and end == {**named, "code": 0, "out": "a\udcff"}
    assert end["out"].encode("utf-8", "surrogateescape") == b"a\xff"


@pytest.mark.parametrize(
    ("action", "noted"),
    [
        (lambda: shell("printf 'a\\r\\nb'; printf c >&2", capture_output=True, text=True), {"out": "a\nb", "err": "c"}),
        (lambda: shell("exit 3"), {"code": 3}),
        (lambda: shell("kill -TERM $$"), {"code": -15}),
        (lambda: subprocess.call(["false"]), {"code": 1}),
        (lambda: os.system("exit 7"), {"code": 7}),
        (lambda: os.system("kill -TERM $$"), {"code": -15}),
        (lambda: subprocess.getstatusoutput("echo a; exit 2"), {"code": 2, "out": "a\n"}),
        (lambda: shell("head -c 65537 /dev/zero", capture_output=True), {"code": 0, "cut": True}),
    ],
)
def test_the_end_is_noted_however_it_is_asked_for(action: Callable[[], Any], noted: dict[str, Any]) -> None:
    assert ends(action) == [{"code": 0, **noted}]


def test_nothing_changes_for_the_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unwrapped(monkeypatch)
    outcomes = Outcomes()

    def note(*_: Any, **__: Any) -> None:
        raise RuntimeError("the disk is full")

    outcomes.listen(note)
    before = subprocess.Popen([b"printf", Path("a")], stdout=subprocess.PIPE)
    outcomes.install()
    assert before.communicate() == (b"a", None)  # it was started before
    assert subprocess.check_output([b"printf", Path("a")]) == b"a"
    assert subprocess.check_output(iter(["printf", "a"])) == b"a"  # type: ignore[call-overload]
    assert subprocess.getoutput("echo b") == "b" and os.system("exit 3") == 3 << 8
    assert isinstance(failure(lambda: subprocess.run(["./missing"], cwd=tmp_path)), FileNotFoundError)
    assert isinstance(failure(lambda: subprocess.Popen(7)), TypeError)  # type: ignore[call-overload]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.poll() is None and cat.communicate(b"c") == (b"c", None)


def test_system_can_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a pool does that is to call it."""
    unwrapped(monkeypatch)
    Outcomes().install()
    assert pickle.loads(pickle.dumps(os.system)) is os.system  # noqa: S301


def test_a_system_that_knows_no_end_says_so_to_the_rank() -> None:
    """Where SIGCHLD is ignored, the kernel keeps no end for it."""
    given: list[int] = []
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        (start,) = recorded(lambda: given.append(os.system("true")))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert given == [-1] and "code" not in start.data


@pytest.mark.parametrize(
    ("use", "given"),
    [
        (lambda: subprocess.check_output(["printf", "a"]), b"a"),
        (lambda: subprocess.call(["false"]), 1),
        (lambda: os.system("exit 3"), 3 << 8),
    ],
)
def test_an_end_that_cannot_be_noted_is_the_ranks_all_the_same(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[], Any], given: object
) -> None:
    unwrapped(monkeypatch)
    noting = Outcomes()
    monkeypatch.setattr(noting, "ended", lambda *_: 1 / 0)
    noting.install()
    assert use() == given


class Undecoded(bytes):
    def decode(self, *_: Any) -> str:
        raise AssertionError("it may be most of the memory")


@pytest.mark.parametrize("printed", [Undecoded(outcomes.MOST_OUTPUT_BYTES + 1), bytearray(b"a")])
def test_an_output_that_is_not_noted_is_not_decoded(printed: Any) -> None:
    told: list[dict[str, Any]] = []
    noting = Outcomes()
    noting.listen(lambda kind, **data: told.append(data))
    started = noting.start(Command(("x",), "/"), lambda: None, lambda _: None)
    assert started is not None
    noting.ended(started, Outcome(0, printed))
    assert told[1]["cut"] and "out" not in told[1]


def test_one_that_cannot_be_started_is_noted(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    (note,) = recorded(lambda: subprocess.run([missing]))
    assert (note.data["errno"], note.data["text"]) == (2, missing)


def test_starts_are_counted_by_what_is_started_and_where(tmp_path: Path) -> None:
    def start() -> None:
        for line, folder in (("exit 1", None), ("exit 1", tmp_path), ("exit 1", None), ("exit 2", None)):
            shell(line, cwd=folder)

    starts = [note.data for note in recorded(start)][::2]
    assert [start["nth"] for start in starts] == [1, 1, 2, 1]
    assert starts[1]["arguments"] == ["/bin/sh", "-c", "exit 1"] and starts[1]["folder"] == str(tmp_path)


def test_an_output_that_is_read_after_the_end_is_noted_too() -> None:
    def read() -> None:
        with subprocess.Popen(["printf", "a"], stdout=subprocess.PIPE) as program:
            program.wait()
            program.communicate()

    assert [{k: n.data.get(k) for k in ("code", "out")} for n in recorded(read)] == [
        {"code": None, "out": None},
        {"code": 0, "out": None},
        {"code": 0, "out": "a"},
    ]


def test_what_was_started_before_the_log_was_open_is_noted_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    unwrapped(monkeypatch)
    told: list[list[str]] = []
    outcomes = Outcomes()
    outcomes.install()
    subprocess.run(["true"])
    assert not told
    outcomes.listen(lambda kind, **data: told.append([kind, *data["arguments"]]))
    subprocess.run(["false"])
    assert told == [["program", "true"]] * 2 + [["program", "false"]] * 2


def test_what_is_noted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MOST_PROGRAMS", 3)
    monkeypatch.setattr(outcomes, "MOST_ARGUMENTS_BYTES", 40)
    monkeypatch.setattr(outcomes, "MOST_BYTES", 70)

    def start() -> None:
        for words in (["printf", "a" * 40], ["printf", "b" * 20], ["printf", "%20s", "c"], ["true"], ["false"]):
            subprocess.run(words, stdout=subprocess.PIPE)

    noted = [(n.data["arguments"][-1][:1], n.data.get("out"), n.data.get("cut")) for n in recorded(start)][1::2]
    assert noted == [("b", "b" * 20, None), ("c", None, True), ("t", "", None)]


def test_commands_are_counted_no_longer_than_they_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MOST_BYTES", 2)
    noting = Outcomes()
    started = [noting.start(Command((word,), "/"), lambda: None, lambda _: None) for word in ("a", "bb", "c", "dd")]
    assert [each is not None for each in started] == [True, False, False, False]
    assert len(noting._starts) == 1


def test_programs_of_compilers_asyncio_and_the_debugger_are_not_noted() -> None:
    def built(where: str) -> None:
        code = compile("subprocess.run(['true'])", where, "exec")
        exec(code, {"subprocess": subprocess})

    def quiet() -> None:
        with ours():
            subprocess.run(["true"])

    async def awaited() -> int:
        return await (await asyncio.create_subprocess_exec("false")).wait()

    assert len(recorded(lambda: built("/x/torch/utils/other.py"))) == 2
    assert not recorded(lambda: built("/x/torch/utils/cpp_extension.py"))
    assert not recorded(lambda: built("/x/torch/_inductor/cpp_builder.py"))
    assert not recorded(quiet)
    assert not recorded(lambda: asyncio.run(awaited()))
