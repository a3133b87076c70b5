"""A long traceback in the few lines that say most."""

from __future__ import annotations

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
    assert shown == (*own, "  … 1 frame", "RuntimeError: a", "b", "  … 2 lines")


def test_what_an_earlier_exception_said_is_kept() -> None:
    between = "During handling of the above exception, another exception occurred:"
    lines = [TITLE, *frames(LIBRARY), "KeyError: 'x'", between, TITLE, *frames("/job/train.py"), "ValueError: no"]
    assert folded(lines) == ("KeyError: 'x'", between, *lines[7:9], "ValueError: no")


def test_no_frames_that_python_writes() -> None:
    lines = [f"  | line {at}" for at in range(20)]
    assert folded(lines) == ("  … 15 lines", *lines[15:])
