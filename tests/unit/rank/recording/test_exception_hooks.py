"""What is noted of an exception that nothing caught: enough to tell it, and never more than a log's record holds."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from prismdbg.capsule.log.format import EVENT_SEGMENT_BYTES
from prismdbg.capsule.secrets.masking import (
    stands_in,
)
from prismdbg.capsule.secrets.rules import found_in
from prismdbg.capsule.secrets.shapes import Found
from prismdbg.rank.recording import exception_hooks
from prismdbg.rank.recording.exception_hooks import MOST_LINES, MOST_TEXT, describe

ROOT = Path(__file__).parents[4]


def caught(error: Exception) -> Exception:
    try:
        raise error
    except Exception as raised:
        return raised


def deep(frames: int) -> None:
    return wide(frames) if frames else None


def wide(frames: int) -> None:  # two functions in turn: Python folds a call that is repeated
    if frames <= 1:
        raise ValueError("at the bottom")
    deep(frames - 1)


@pytest.mark.parametrize("text", ["weights " * 400_000, "\U0001f525" * 3_000_000])
def test_an_exception_with_a_text_of_megabytes_fits_into_the_log(text: str) -> None:
    told = describe(caught(RuntimeError(text)))
    assert told["text"].startswith(text[:1000]) and told["text"].endswith(f"... (of {len(text)} characters)")
    assert told["traceback"][-1].startswith("RuntimeError: ")
    assert len(json.dumps(told)) < EVENT_SEGMENT_BYTES // 2 - 1000


def test_of_a_deep_stack_the_innermost_frames_are_noted() -> None:
    with pytest.raises(ValueError, match="at the bottom") as raised:
        deep(300)
    told = describe(raised.value)
    assert len(told["traceback"]) == MOST_LINES
    assert told["traceback"][-1] == "ValueError: at the bottom\n" and "in wide" in told["traceback"][-2]


def test_a_secret_at_the_end_of_what_is_kept_is_hidden_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    token = "hf_" + "a1" * 20
    text = "x " * ((MOST_TEXT - 20) // 2) + token + " y" * MOST_TEXT
    monkeypatch.setattr(exception_hooks.sys, "orig_argv", ["python", "train.py"])
    told = describe(caught(RuntimeError(text)))
    assert "hf_" not in told["text"] and "hf_" not in "".join(told["traceback"])


def connect(password: str) -> None:
    raise RuntimeError(f"cannot reach https://u:{password}@host")


def test_a_secret_of_the_message_stands_in_no_line_of_the_traceback() -> None:
    with pytest.raises(RuntimeError) as raised:
        connect("s3cr3t-of-a-line")
    told = describe(raised.value)
    assert told["text"] == "cannot reach https://u:<redacted>@host"
    assert 'connect("<redacted>")' in "".join(told["traceback"])
    assert "s3cr3t" not in json.dumps(told)


def test_a_secret_of_a_cause_stands_in_nothing_that_was_raised_from_it() -> None:
    """Nor in a line of the program, which writes it with one more backslash."""
    try:
        try:
            connect("in\\the-s3cr3t")
        except RuntimeError as error:
            raise ValueError("no job for in\\the-s3cr3t") from error
    except ValueError as error:
        told = describe(error)
    assert told["text"] == "no job for <redacted>"
    assert "s3cr3t" not in json.dumps(told) and 'connect("<redacted>")' in "".join(told["traceback"])


def listed(passwords: list[str], note: Callable[[int], str]) -> Exception:
    """An exception with `passwords` in its message and 250 other lines."""
    error = ValueError(" ".join(f"password='{one}'" for one in passwords))
    for number in range(250):
        error.add_note(note(number))
    return caught(error)


PASSWORDS = [f"{letter}{number:03}z" for letter in "qvw" for number in range(66)]


def seconds(error: Exception) -> float:
    begin = time.process_time()
    describe(error)
    return time.process_time() - begin


def test_many_secrets_in_a_message_make_the_search_of_long_lines_hardly_slower() -> None:
    few, many = (listed(PASSWORDS[:most], lambda number: f"{number} " + "a b " * 1000) for most in (0, 200))
    assert seconds(many) < 0.5 + 5 * seconds(few)  # 30 times as long, where each secret is searched for in all of it


@pytest.mark.parametrize("passwords", [PASSWORDS, ["z" * length for length in range(4, 204)]])
def test_lines_with_too_many_places_of_a_secret_are_masked_whole_from_the_outermost_on(
    passwords: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(value: str, text: str) -> bool:
        asked.append(value)
        return stands_in(value, text)

    monkeypatch.setattr(exception_hooks, "stands_in", counted)
    monkeypatch.setattr(exception_hooks, "MOST_PLACES", 1000)
    told = describe(listed(passwords, lambda number: f"{number} {passwords[0]} " + " ".join(passwords)))
    outermost, newest = told["traceback"][0], told["traceback"][-1]
    assert len(asked) <= 1000 and not any(one in line for one in passwords[:9] for line in told["traceback"])
    assert outermost.startswith("<redacted>... (of ") and newest.startswith(
        ("249 <redacted> <red", "<redacted>... (of")
    )


def test_a_secret_at_the_end_of_what_is_shown_of_a_line_is_masked_whole_and_what_is_behind_it_is_not_shown() -> None:
    secret = "s3cr3t-" + "of-the-message-" * 9 + "end"
    error = RuntimeError(f"https://u:{secret}@host")
    error.add_note("x " * 480 + secret + f" y {secret}" * 100)
    error.add_note("last")
    line = describe(caught(error))["traceback"][-2]
    assert line.startswith("x " * 480 + "<redacted>") and "s3cr3t" not in line and "the-message" not in line


def test_words_of_a_message_are_not_masked_in_what_python_writes_into_a_traceback() -> None:
    error = KeyError(
        "password='File' secret=\"line\" db_password='caught' api_key='last' token='Traceback' pwd='tracked'"
    )
    group = caught(ExceptionGroup("tracked", [caught(error)]))
    for raised in (caught(error), group):
        told = describe(raised)
        frames = [line for line in told["traceback"] if __file__ in line]
        assert frames and all(f'File "{__file__}", line ' in line and ", in caught\n" in line for line in frames)
        assert any("Traceback (most recent call last):\n" in line for line in told["traceback"])
    assert told["text"] == "<redacted> (1 sub-exception)"


def test_a_secret_that_is_more_than_a_word_is_masked_in_a_frames_path_too() -> None:
    code = compile("raise RuntimeError('https://u:s3cr3t-9x8y7z@host')", "/data/s3cr3t-9x8y7z/train.py", "exec")
    with pytest.raises(RuntimeError) as raised:
        exec(code, {})
    assert 'File "/data/<redacted>/train.py", line 1' in "".join(describe(raised.value)["traceback"])


BODY = [base64.b64encode(bytes(range(start, start + 48))).decode() for start in range(30)]
KEY = "\n".join(["-----BEGIN PRIVATE KEY-----", *BODY, "-----END PRIVATE KEY-----"])
LINES = {
    f"with the key\n{KEY}": BODY,
    "see\npassword: |\n   swordfish\nend": ["swordfish"],
    "{'password':\n 'swordfish'}": ["swordfish"],
}


def noted(note: str, text: str = "of which") -> Exception:
    error = ValueError(text)
    error.add_note(note)
    return caught(error)


@pytest.mark.parametrize(("text", "values"), LINES.items())
@pytest.mark.parametrize(
    "made",
    [
        noted,
        lambda text: caught(ValueError(text)),
        lambda text: caught(ExceptionGroup("of", [caught(ValueError(text))])),
        lambda text: caught(ExceptionGroup("of", [noted("x"), noted(text)])),
        lambda text: caught(ExceptionGroup("of", [caught(ExceptionGroup("in", [noted(text), noted("x")]))])),
        lambda text: noted("is below", text=f"x\n{text}"),
    ],
)
def test_a_secret_of_several_lines_is_masked_in_notes_and_groups_as_in_a_message(
    made: Callable[[str], Exception], text: str, values: list[str]
) -> None:
    """Python makes a text of each line of a note, and puts a margin before each line of a group."""
    told = describe(made(text))
    assert not any(value in json.dumps(told) for value in values)
    assert "<redacted>" in "".join(told["traceback"])
    assert len(told["traceback"]) == len(traceback.format_exception(made(text)))


def test_a_secret_that_a_note_begins_and_another_line_ends_is_masked() -> None:
    error = noted("password: |")
    error.add_note("   swordfish\n   opensesame\nend")
    assert describe(error)["traceback"][-5:] == [
        "ValueError: of which\n", "password: |\n", "   <redacted>\n", "   <redacted>\n", "end\n",
    ]  # fmt: skip


def test_a_key_that_begins_before_the_lines_that_are_kept_is_masked() -> None:
    told = describe(noted(KEY + "\nline" * (MOST_LINES - 10)))
    assert len(told["traceback"]) == MOST_LINES
    assert told["traceback"][:11] == ["<redacted>\n"] * 10 + ["line\n"]


def test_older_lines_than_can_be_searched_together_are_masked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def counted(text: str) -> list[Found]:
        searched.append(len(text))
        return list(found_in(text))

    monkeypatch.setattr(exception_hooks, "found_in", counted)
    monkeypatch.setattr(exception_hooks, "MOST_TOGETHER", 1000)
    error = ExceptionGroup("in", [noted(f"password: |\n  swordfish\n{'x' * 99}")] * 3)
    error.add_note("\n".join(f"{number:099}" for number in range(20)))
    told = describe(caught(error))["traceback"]
    assert max(searched) <= 1000 and "swordfish" not in "".join(told)
    assert sum(line.startswith("<redacted>... (of ") for line in told) > 9
    assert any("in caught\n" in line for line in told)  # frames hold no secret of several texts


def test_of_a_line_that_is_kept_in_part_only_a_part_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """250 lines of 64 KiB took longer than the 30 s after which a launcher kills a rank."""
    searched: list[int] = []

    def counted(text: str) -> list[Found]:
        searched.append(len(text))
        return list(found_in(text))

    monkeypatch.setattr(exception_hooks, "found_in", counted)
    describe(noted("\n".join(f"{number} {'a b ' * 16_000}" for number in range(250))))
    assert sum(searched) < 5 << 20


def test_long_notes_take_hardly_longer_than_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    error = noted("\n".join(f"{number} {'a b ' * 4_000}" for number in range(300)))
    together = seconds(error)
    monkeypatch.setattr(exception_hooks, "MOST_TOGETHER", 0)
    assert together < 0.5 + 2 * seconds(error)


class Text(str):
    """No key of a dict."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class WithText(Exception):
    def __str__(self) -> str:
        return Text("token hf_" + "a1" * 20)


def test_a_text_of_a_class_of_its_own_is_noted_as_a_plain_one() -> None:
    told = describe(caught(WithText()))
    assert (type(told["text"]), told["text"]) == (str, "token <redacted>")


def test_a_text_that_fits_is_noted_as_it_is() -> None:
    assert describe(caught(RuntimeError("x" * MOST_TEXT)))["text"] == "x" * MOST_TEXT


COMPARES = """
import code, sys, threading
sys.path.insert(0, sys.argv[1])
before = sys.excepthook, threading.excepthook
from prismdbg.rank.recording.exception_hooks import install

class Witness:
    def exception(self, report, error):
        print("told", report["type"], report.get("thread", False), flush=True)
    def end(self, code):
        print("end", code, flush=True)

install(Witness())
assert sys.excepthook is sys.__excepthook__ and threading.excepthook is threading.__excepthook__
console, written = code.InteractiveConsole(), []
console.write = written.append
console.push("1 / 0")
print("console", "".join(written).strip().splitlines()[-1], flush=True)
try:
    raise KeyError("printed, and on it goes")
except KeyError:
    sys.excepthook(*sys.exc_info())
sys.excepthook = lambda *_: print("own hook", flush=True)
assert sys.excepthook is not sys.__excepthook__
sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
def fail():
    raise OSError("of a thread")
thread = threading.Thread(target=fail)
thread.start(), thread.join()
raise ValueError("the loss is lost")
"""


def test_libraries_that_compare_the_hooks_see_pythons_own_and_each_exception_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPARES)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "console ZeroDivisionError: division by zero",
        "told KeyError False",
        "told OSError True",
        "told ValueError False",
        "end 1",
    ], done.stderr
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: the loss is lost" and "exception_hooks" not in done.stderr


HOOK_FROM_BEFORE = """
import sys
sys.path.insert(0, sys.argv[1])
sys.excepthook = lambda *_: print("own hook", flush=True)
builtin = sys.__excepthook__
from prismdbg.rank.recording.exception_hooks import install

class Witness:
    exception = end = lambda *_: None

install(Witness())
assert sys.__excepthook__ is builtin and sys.excepthook is not builtin
1 / 0
"""


def test_a_hook_from_before_is_still_another_than_pythons(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HOOK_FROM_BEFORE)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "own hook\n", "")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_whose_text_fails_is_noted_as_python_prints_it() -> None:
    assert describe(caught(Unprintable()))["text"] == "<exception str() failed>"
    try:
        raise RuntimeError("wrapped") from Unprintable()
    except RuntimeError as error:
        told = describe(error)
    assert (told["type"], told["text"], told["incident"]) == ("RuntimeError", "wrapped", "exception")
