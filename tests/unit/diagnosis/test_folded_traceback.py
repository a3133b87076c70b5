"""A long traceback in the few lines that say most."""

from __future__ import annotations

import traceback

from prismdbg.diagnosis.folded_traceback import folded

TITLE = "Traceback (most recent call last):"
LIBRARY = "/opt/venv/lib/python3.11/site-packages/torch/nn.py"


def frames(*files: str) -> list[str]:
    named = enumerate(files)
    return [line for at, file in named for line in (f'  File "{file}", line {at}, in f', "    g(x)", "      ^^^")]


def test_a_short_one_is_left_as_it_is() -> None:
    lines = (TITLE, *frames("/job/train.py"), "ValueError: no")
    assert folded(lines) == lines


def test_the_programs_own_line_and_the_exception_are_kept() -> None:
    lines = [TITLE, *frames("/job/main.py", "/job/train.py", LIBRARY, LIBRARY, LIBRARY), "ValueError: no"]
    own = ('  File "/job/train.py", line 1, in f', "    g(x)")
    assert folded(lines) == ("  … 1 frame", *own, "  … 3 frames", "ValueError: no")


def test_a_program_that_is_installed_and_a_long_message() -> None:
    shown = folded([TITLE, *frames(LIBRARY, LIBRARY), "RuntimeError: a", "b", "c", "d"])
    own = (f'  File "{LIBRARY}", line 0, in f', "    g(x)")
    assert shown == (*own, "  … 1 frame", "RuntimeError: a", "  … 2 lines", "d")


def test_what_an_earlier_exception_said_is_kept() -> None:
    between = "During handling of the above exception, another exception occurred:"
    lines = [TITLE, *frames(LIBRARY), "KeyError: 'x'", between, TITLE, *frames("/job/train.py"), "ValueError: no"]
    assert folded(lines) == ("KeyError: 'x'", between, *lines[7:9], "ValueError: no")


def test_no_frames_that_python_writes() -> None:
    lines = [f"  | line {at}" for at in range(20)]
    assert folded(lines) == ("  … 15 lines", *lines[15:])


def test_what_a_worker_of_a_loader_raised() -> None:
    caught = "ValueError: Caught ValueError in DataLoader worker process 0."
    main = [TITLE, *frames("/job/train.py", LIBRARY), caught]
    worker = [f"Original {TITLE}", *frames(LIBRARY, "/job/data.py"), "ValueError: sample 17 is broken"]
    own = ('  File "/job/data.py", line 1, in f', "    g(x)")
    assert folded([*main, *worker]) == (caught, "  … 1 frame", *own, "ValueError: sample 17 is broken")


def test_a_recursion_counts_all_its_frames() -> None:
    again = "  [Previous line repeated 996 more times]"
    lines = [TITLE, *frames("/job/train.py", LIBRARY, LIBRARY), again, "RecursionError: too deep"]
    assert folded(lines)[2:] == ("  … 998 frames", "RecursionError: too deep")


def test_the_exceptions_of_a_group_are_kept() -> None:
    """As Python 3.11 writes them, raised from or by themselves."""
    try:
        try:
            raise ExceptionGroup("two shards", [ValueError("shard 1 is short"), KeyError("shard 2")])
        except ExceptionGroup as group:
            raise RuntimeError("cannot load") from group
    except RuntimeError as error:
        lines = [line for text in traceback.format_exception(error) for line in text.splitlines()]
    shown = folded(lines)
    for text in ("two shards (2 sub-exceptions)", "ValueError: shard 1 is short", "KeyError: 'shard 2'"):
        assert any(line.endswith(text) for line in shown)
    assert shown[-1] == "RuntimeError: cannot load"


def test_what_stands_before_the_first_traceback_is_not_lost() -> None:
    lines = ["rank 3:", TITLE, *frames(LIBRARY, LIBRARY), "ValueError: no"]
    assert folded(lines)[0] == "rank 3:"
