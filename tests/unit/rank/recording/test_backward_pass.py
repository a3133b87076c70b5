"""Who runs the backward pass is known while exactly one thread does."""

import os
import signal
import threading

import pytest
import torch

from prismdbg.rank.recording.backward_pass import BackwardPass


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    monkeypatch.setattr(torch.autograd, "_engine_run_backward", torch.autograd._engine_run_backward)
    BackwardPass(found.append).install()
    return found


def test_a_pass_begins_and_ends_also_when_it_fails(told: list[bool]) -> None:
    torch.ones(2, requires_grad=True).sum().backward()
    assert told == [True, False]
    with pytest.raises(RuntimeError):
        torch.ones(2).sum().backward()
    assert told == [True, False, True, False]


def test_one_within_another_is_no_pass_of_its_own(told: list[bool]) -> None:
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)

    def another(gradient: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return torch.autograd.grad((y * 2).sum(), y)[0] * gradient

    x.register_hook(another)
    (x * 3).sum().backward()
    assert told == [True, False]


def test_with_two_at_once_nobody_is_named(told: list[bool]) -> None:
    inside, go = threading.Event(), threading.Event()
    x = torch.ones(2, requires_grad=True)

    def hold(gradient: torch.Tensor) -> None:
        inside.set()
        assert go.wait(20)

    x.register_hook(hold)
    other = threading.Thread(target=lambda: x.sum().backward())
    other.start()
    assert inside.wait(20)
    torch.ones(2, requires_grad=True).sum().backward()
    assert told == [True, False]
    go.set()
    other.join(20)
    assert told == [True, False, False]


def test_a_torch_without_that_function_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd, "_engine_run_backward")
    BackwardPass(lambda on: None).install()
    assert not hasattr(torch.autograd, "_engine_run_backward")


def test_a_child_forked_while_another_thread_is_told_begins_a_pass_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    inside, go = threading.Event(), threading.Event()

    def tell(begins: bool) -> None:
        found.append(begins)
        if threading.current_thread() is other:
            inside.set()
            assert go.wait(20)

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", lambda: None)
    BackwardPass(tell).install()
    other = threading.Thread(target=torch.autograd._engine_run_backward)
    other.start()
    assert inside.wait(20)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # it would wait for a lock that no thread of its own holds
        found.clear()
        torch.autograd._engine_run_backward()
        os._exit(0 if found == [True, False] else 1)
    go.set()
    other.join(20)
    assert os.waitpid(child, 0)[1] == 0


def test_a_signal_s_handler_that_begins_one_meanwhile_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []

    def tell(begins: bool) -> None:
        found.append(begins)
        if len(found) == 1:  # a handler runs on the same thread
            torch.autograd._engine_run_backward()

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", lambda: None)
    BackwardPass(tell).install()
    thread = threading.Thread(target=torch.autograd._engine_run_backward, daemon=True)
    thread.start()
    thread.join(20)
    assert found == [True, False]
