"""The exit code that a program's last hook is told, however it ends."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
import warm_torch

from prismdbg.rank.recording.program_exit import ExitCode

Ended = tuple[int, list[str], str]


def run(program: str, home: Path) -> Ended:
    """Its exit code, the words that it printed, and its standard error."""
    script, errors = home / "program.py", home / "errors.txt"
    script.write_text(f"import os\nos.dup2(os.open({str(errors)!r}, os.O_WRONLY | os.O_CREAT), 2)\n{program}")
    [(code, printed)] = warm_torch.run([script], cwd=home)
    return code, printed.split(), errors.read_text()


PROGRAM = """
import sys, threading
from prismdbg.rank.recording import exception_hooks

class Witness:
    def exception(self, report, error): pass
    def end(self, code): print("told", code, flush=True)

exception_hooks.install(Witness())
def deep():
    sys.exit(5)
def main():
    {body}
main()
"""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("pass", 0),
        ("deep()", 5),
        ("sys.exit()", 0),
        ("sys.exit(0)", 0),
        ("sys.exit(True)", 1),
        ("sys.exit('what went wrong')", 1),
        ("import argparse; argparse.ArgumentParser().parse_args(['--none'])", 2),
        ("raise ValueError", 1),
        ("raise KeyboardInterrupt", 130),
        ("try: deep()\n    except SystemExit: pass", 0),
        ("try: deep()\n    except SystemExit as e: kept = e.code", 0),
        ("try: deep()\n    except SystemExit: sys.exit(7)", 7),
        ("try: deep()\n    except SystemExit as e: sys.exit(e)", 5),
        ("class Own(SystemExit): pass\n    sys.exit(Own(6))", 6),
        ("sys.exit((4,))", 4),
        ("sys.exit((4, 5))", 1),
        ("sys.exit(())", 0),
        ("try: deep()\n    finally: print()", 5),
        ("thread = threading.Thread(target=deep); thread.start(); thread.join()", 0),
    ],
)
def test_the_code_that_is_told_is_the_code_it_ends_with(body: str, code: int, tmp_path: Path) -> None:
    ended, printed, errors = run(PROGRAM.format(body=body), tmp_path)
    assert ended in (code, code - 132), errors  # an interrupt ends it as the signal would
    assert printed == ["told", str(code)]


HOOKED = """
import os, sys
from prismdbg.rank.recording import exception_hooks

class Witness:
    def exception(self, report, error): print("noted", report["type"], report["text"], flush=True)
    def end(self, code): print("told", code, flush=True)

exception_hooks.install(Witness())
def main():
    {body}
    {ending}
main()
"""


@pytest.mark.parametrize(
    ("body", "ending", "said"),
    [
        ("sys.excepthook = lambda *error: print('mine')", "raise ValueError('x')", "noted ValueError x mine told 1"),
        ("sys.excepthook = lambda *error: os._exit(1)", "raise ValueError('x')", "noted ValueError x"),
        ("sys.excepthook = None", "raise ValueError('x')", "noted ValueError x told 1"),
        ("del sys.excepthook", "raise ValueError('x')", "noted ValueError x told 1"),
        ("sys.excepthook = sys.__excepthook__", "raise ValueError('x')", "noted ValueError x told 1"),
        ("mine = sys.excepthook; sys.excepthook = lambda *error: mine(*error)", "raise ValueError('x')",
         "noted ValueError x told 1"),
        ("pass", "raise ValueError('x')", "noted ValueError x told 1"),
        ("sys.excepthook(ValueError, ValueError('a'), None)", "raise ValueError('x')",
         "noted ValueError a noted ValueError x told 1"),
        ("sys.excepthook(ValueError, ValueError('a'), None)", "pass", "noted ValueError a told 0"),
        ("sys.excepthook = lambda *error: print('mine')", "raise KeyboardInterrupt", "mine told 130"),
        ("sys.excepthook = lambda *error: print('mine')", "sys.exit(3)", "told 3"),
    ],
)  # fmt: skip
def test_an_exception_is_noted_once_whoever_has_the_hook(body: str, ending: str, said: str, tmp_path: Path) -> None:
    _, printed, errors = run(HOOKED.format(body=body, ending=ending), tmp_path)
    assert " ".join(printed) == said, errors


THREADS = HOOKED.replace("import os, sys", "import os, sys, threading").replace(
    '"noted",', '"noted in a thread" if "thread" in report else "noted",'
)
NOTED = "noted in a thread ValueError x"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("pass", NOTED),
        ("threading.excepthook = lambda told: print('mine')", f"{NOTED} mine"),
        ("threading.excepthook = lambda told: os._exit(0)", NOTED),
        ("threading.excepthook = threading.__excepthook__", NOTED),
        ("ours = threading.excepthook; threading.excepthook = lambda told: ours(told)", NOTED),
        ("def mine(told):\n        print('mine', flush=True); raise KeyError\n    threading.excepthook = mine",
         f"{NOTED} mine noted in a thread KeyError"),
        ("threading.excepthook(threading.ExceptHookArgs([KeyError, KeyError('a'), None, None]))",
         f"noted in a thread KeyError 'a' {NOTED}"),
    ],
)  # fmt: skip
def test_an_exception_of_a_thread_is_noted_once_whoever_has_the_hook(body: str, said: str, tmp_path: Path) -> None:
    ending = (
        "def run(): raise ValueError('x')\n    thread = threading.Thread(target=run); thread.start(); thread.join()"
    )
    _, printed, errors = run(THREADS.format(body=body, ending=ending), tmp_path)
    ends = "" if "os._exit" in body else " told 0"
    assert " ".join(printed) == said + ends, errors


@pytest.mark.parametrize("hook", ["pass", "threading.excepthook = lambda told: None"])
def test_a_thread_that_exits_has_no_incident(hook: str, tmp_path: Path) -> None:
    ending = "thread = threading.Thread(target=sys.exit, args=(3,)); thread.start(); thread.join()"
    _, printed, errors = run(THREADS.format(body=hook, ending=ending), tmp_path)
    assert printed == ["told", "0"], errors


def test_to_others_it_is_a_system_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs compare: `if exc_type is SystemExit`."""
    monkeypatch.setattr(sys, "exit", sys.exit)
    ExitCode().install()
    with pytest.raises(SystemExit) as raised:
        sys.exit(3)
    error = raised.value
    assert type(error) is SystemExit and error.args == (3,) and error.code == 3 and repr(error) == "SystemExit(3)"
    assert b"prismdbg.rank" not in pickle.dumps(error)
    assert error.__reduce__()[0] is SystemExit


def test_an_exit_that_was_caught_goes_on_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """`except SystemExit as error: cleanup(); sys.exit(error)`"""
    monkeypatch.setattr(sys, "exit", sys.exit)
    caught = SystemExit(3)
    code = ExitCode()
    code.install()
    for _ in range(2):
        with pytest.raises(SystemExit) as raised:
            sys.exit(caught)  # type: ignore[arg-type]
        assert raised.value is caught and code.value == 3


def test_a_thread_of_c_that_calls_it_ends_without_a_word(tmp_path: Path) -> None:
    """It has no frame of Python's below."""
    ending = (
        "import _thread\n    done = threading.Event()\n    class Code(int):\n        def __del__(self): done.set()\n"
        "    _thread.start_new_thread(sys.exit, (Code(3),)); done.wait(60)"
    )
    _, printed, errors = run(THREADS.format(body="pass", ending=ending), tmp_path)
    assert (printed, errors) == (["told", "0"], "")


def test_it_exits_whatever_its_listener_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise KeyError

    monkeypatch.setattr(sys, "exit", sys.exit)
    ExitCode().install(fails)
    with pytest.raises(SystemExit) as raised:
        sys.exit(3)
    assert raised.value.code == 3 and raised.value.__context__ is None


SPAWNED = """
import sys
from torch.multiprocessing.spawn import _wrap
from prismdbg.rank.recording import exception_hooks

class Witness:
    def exception(self, report, error): print(report["type"], flush=True)
    def end(self, code): print("told", code, flush=True)

exception_hooks.install(Witness())
def fails(number, how):
    if how == "exits":
        sys.exit(number)
    try:
        raise KeyError(how)
    except KeyError:
        pass
    raise ValueError(how)
_wrap(fails, 3, ("{how}",), "errors.pickle")
"""


@pytest.mark.parametrize(("how", "told"), [("raises", ["ValueError", "told", "1"]), ("exits", ["told", "3"])])
def test_what_torchs_spawn_catches_is_told_before_it_ends_the_process(
    tmp_path: Path, how: str, told: list[str]
) -> None:
    code, printed, _ = run(SPAWNED.replace("{how}", how), tmp_path)
    assert (code, printed) == (int(told[-1]), told)
