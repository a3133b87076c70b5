"""What a spawned rank shared with other processes: it sends to nobody, waits for nobody, and is told plainly what the
recording does not have."""

from __future__ import annotations

import io
import multiprocessing
import multiprocessing.queues
import multiprocessing.synchronize
import threading
from collections.abc import Callable
from multiprocessing import context, popen_spawn_posix, reduction
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch.multiprocessing

from prismdbg.rank.replay import stand_ins

SPAWN: Any = multiprocessing.get_context("spawn")
TORCHS: Any = torch.multiprocessing.get_context("spawn")


def given(*arguments: object) -> Any:
    """As a process gets them in a replay that multiprocessing spawned with them."""
    out, popen = io.BytesIO(), object.__new__(popen_spawn_posix.Popen)
    vars(popen)["_fds"] = []
    context.set_spawning_popen(popen)
    try:
        reduction.dump(arguments, out)
    finally:
        context.set_spawning_popen(None)
    out.seek(0)
    return stand_ins.load(out)


@pytest.mark.parametrize(
    "make", [SPAWN.Queue, SPAWN.JoinableQueue, SPAWN.SimpleQueue, TORCHS.Queue, TORCHS.SimpleQueue]
)
def test_a_queue_takes_all_and_has_nothing_to_give(make: Callable[[], Any]) -> None:
    original = make()
    (queue,) = given(original)
    assert isinstance(queue, type(original)) and type(queue).__name__ == type(original).__name__
    for _ in range(3):
        queue.put({"loss": 1.0})
    for ask in (queue.get, queue.empty):
        with pytest.raises(RuntimeError, match=r"to a queue$|in a queue$"):
            ask()
    queue.close()
    if not isinstance(queue, multiprocessing.queues.SimpleQueue):
        queue.put_nowait(torch.ones(2))
        with pytest.raises(
            RuntimeError, match="not in the recording of this rank: what other processes put into a queue"
        ):
            queue.get(timeout=0.1)
        with pytest.raises(RuntimeError, match="how much"):
            queue.qsize()
        queue.cancel_join_thread()
        queue.join_thread()


def test_one_that_has_a_bound_is_never_full() -> None:
    (queue,) = given(SPAWN.Queue(1))
    for _ in range(3):
        queue.put(1)
    assert not queue.full()


def test_a_connection_sends_to_nobody() -> None:
    mine, theirs = SPAWN.Pipe()
    for end in given(mine, theirs):
        assert isinstance(end, Connection) and not end.closed
        end.send("a")
        end.send_bytes(b"a")
        for ask in (end.recv, end.recv_bytes, end.poll):
            with pytest.raises(RuntimeError, match="what other processes sent over a connection"):
                ask()
        with pytest.raises(RuntimeError, match="the other end"):
            end.fileno()
        end.close()
        assert end.closed


def test_an_event_is_set_when_it_is_waited_for() -> None:
    original = SPAWN.Event()
    (event,) = given(original)
    assert isinstance(event, multiprocessing.synchronize.Event)
    with pytest.raises(RuntimeError, match="whether other processes have set an event"):
        event.is_set()
    with pytest.raises(RuntimeError):
        event.wait(5)  # the program may have gone on without it
    assert (event.wait(), event.is_set(), event.wait(5)) == (True, True, True)
    event.clear()
    with pytest.raises(RuntimeError):
        event.is_set()
    event.set()
    assert event.is_set() and "Event" in repr(event)


@pytest.mark.parametrize("make", [SPAWN.Lock, SPAWN.RLock, SPAWN.Semaphore, SPAWN.BoundedSemaphore])
def test_a_lock_is_a_new_one(make: Callable[[], Any]) -> None:
    original = make()
    original.acquire()
    (lock,) = given(original)
    for _ in range(2):
        assert lock.acquire(timeout=0)
        lock.release()
    with lock:
        pass
    lock.acquire()
    if make == SPAWN.Lock:
        assert not lock.acquire(block=False), "it is no lock"
    assert not original.acquire(block=False) or make == SPAWN.RLock, "it is the parent's"


def test_a_semaphore_is_never_used_up() -> None:
    (many, bounded) = given(SPAWN.Semaphore(3), SPAWN.BoundedSemaphore(3))
    assert all(many.acquire(block=False) for _ in range(10))
    assert [bounded.acquire(block=False) for _ in range(4)] == [True, True, True, False]


def test_nobody_is_waited_for_at_a_condition_or_a_barrier() -> None:
    condition, barrier = given(SPAWN.Condition(), SPAWN.Barrier(4))
    with condition:
        assert condition.wait() and condition.wait_for(lambda: True)
        condition.notify_all()
        with pytest.raises(RuntimeError, match="notified a condition"):
            condition.wait_for(lambda: False)
    assert (barrier.wait(), barrier.parties, barrier.broken) == (3, 4, False)


def test_a_thread_beside_the_main_one_waits_on() -> None:
    """It may have waited till the end: `stop.wait(); os._exit(7)`."""
    (event,) = given(SPAWN.Event())
    passed: list[bool] = []
    waiting = threading.Thread(target=lambda: passed.append(event.wait()), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive() and not passed


def test_all_else_is_what_it_is() -> None:
    found = given([1.5, "a"], {"b": Connection}, io.StringIO, multiprocessing.TimeoutError)
    assert found == ([1.5, "a"], {"b": Connection}, io.StringIO, multiprocessing.TimeoutError)
