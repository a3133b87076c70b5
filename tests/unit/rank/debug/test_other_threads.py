"""The program's other threads, as they are listed at a stop: named, with their frames, and asked nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from waiting import wait_for

from prismdbg.protocol.messages import checked_reply
from prismdbg.rank.debug.threads import all_stacks, other_threads
from prismdbg.settings.own_thread import start_own_thread

BOUND_S = 30.0
done = threading.Event()
asked: list[str] = []


class Silent(threading.Thread):
    """Its own code has an opinion on its name."""

    @property
    def name(self) -> str:  # type: ignore[override]
        asked.append("name")
        return "wrong"


class Text(str):
    __slots__ = ()

    def __getitem__(self, _: Any) -> str:
        asked.append("item")
        return "wrong"


def waits_for_its_end() -> None:
    done.wait()


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    done.clear()
    asked.clear()
    yield
    done.set()


def listed(name: str) -> dict[str, Any] | None:
    found = checked_reply("threads", {"ok": True, "threads": other_threads()})["threads"]
    return next((each for each in found if each["name"] == name), None)


@contextmanager
def running(thread: threading.Thread) -> Iterator[None]:
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(BOUND_S)


def test_a_thread_has_its_name_and_its_frames() -> None:
    with running(threading.Thread(target=waits_for_its_end, name="loader")):
        wait_for(lambda: _is_at(listed("loader"), "waits_for_its_end"), BOUND_S, "the thread to wait")
        found = listed("loader")
        assert found is not None
        assert [f["filename"] for f in found["frames"] if f["name"] == "waits_for_its_end"] == [__file__]
        assert found["frames"][0]["name"] != "waits_for_its_end", "innermost first"
        assert all(each["thread"] != threading.get_ident() for each in other_threads())
    assert listed("loader") is None


def test_threads_of_one_name_each_have_their_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the main one is found first, whatever the program calls it."""
    monkeypatch.setattr(threading.main_thread(), "name", "trainer")
    with (
        running(threading.Thread(target=waits_for_its_end, name="prefetch")),
        running(threading.Thread(target=waits_for_its_end, name="prefetch")),
    ):
        told = checked_reply("stacks", {"ok": True, "threads": all_stacks()})["threads"]
    names = [each["name"] for each in told]
    assert names[0] == "MainThread" and names.count("prefetch") == 2 and "trainer" not in names
    assert any(frame["name"].startswith("test_threads_of_one_name") for frame in told[0]["frames"])


def test_prismdbgs_own_threads_are_left_out() -> None:
    own = start_own_thread("prismdbg-client", done.wait)
    wait_for(lambda: own.ident in sys._current_frames(), BOUND_S, "the thread to begin")
    assert own.ident not in [each["thread"] for each in other_threads()]
    done.set()
    own.join(BOUND_S)


def test_a_name_is_what_the_thread_holds_and_none_of_its_code_runs() -> None:
    thread = Silent(target=waits_for_its_end)
    thread._name = Text("its own")  # type: ignore[attr-defined]
    asked.clear()
    with running(thread):
        wait_for(lambda: listed("its own"), BOUND_S, "the thread to begin")
        during = list(asked)
    assert during == []


def _is_at(thread: dict[str, Any] | None, function: str) -> bool:
    return thread is not None and any(frame["name"] == function for frame in thread["frames"])
