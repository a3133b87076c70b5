"""What is noted of an exception that nothing caught: enough to tell it, and never more than a log's record holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from prismdbg.capsule.log.format import EVENT_SEGMENT_BYTES
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
