"""What a future's callback raised, out of torch's words for it."""

from __future__ import annotations

import types

import pytest

from prismdbg.rank.c10d.callback_error import error_of, meant

WORDED = "Got the following error when running the callback: "


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Connection closed by peer", ("RuntimeError", "Connection closed by peer")),
        (f"{WORDED}ValueError: no\n\nAt:\n  works.py(97): settle\n", ("ValueError", "no")),
        (f"{WORDED}RuntimeError: two\n\nlines\n\nAt:\n  a(1): b\n", ("RuntimeError", "two\n\nlines")),
        (f"{WORDED}RuntimeError: {WORDED}KeyError: 'x'\n\nAt:\n  a(1): b\n", ("KeyError", "'x'")),
        ("At:\n  mine", ("RuntimeError", "At:\n  mine")),
    ],
)
def test_what_was_meant(text: str, wanted: tuple[str, str]) -> None:
    assert meant("RuntimeError", text) == wanted


def test_the_class_is_looked_up_by_its_name() -> None:
    class DistBackendError(RuntimeError):
        pass

    torch = types.SimpleNamespace(DistBackendError=DistBackendError, wait=print)
    assert type(error_of("DistBackendError", "x", torch)) is DistBackendError
    assert type(error_of("ValueError", "x", torch)) is ValueError
    assert type(error_of("gone.Elsewhere", "x", torch)) is RuntimeError
    assert type(error_of("wait", "x", torch)) is RuntimeError
    assert type(error_of("KeyboardInterrupt", "x", torch)) is RuntimeError, "no end of the program"
