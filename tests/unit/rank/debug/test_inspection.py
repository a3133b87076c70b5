"""Looking into a stopped rank: values, names, source; and no trace of it in the program."""

from __future__ import annotations

import _thread
import gc
import json
import queue
import random
import sys
import weakref
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy
import pytest
import torch

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg.rank.debug.gate import Stop
from prismdbg.rank.debug.inspection import address_of, evaluate_at, frames_of, locals_at, source_at
from prismdbg.rank.debug.rendering import render
from prismdbg.rank.program.frames import innermost, program_frame, stack_of
from prismdbg.rank.program.isolation import is_quiet, quiet, refuse_collective
from prismdbg.rank.replay.membership import peers_at
from tests.unit.logs import Job


def stop_at(frame: FrameType | None, **names: Any) -> Stop:
    return Stop("next", Moment(1, 2), {"process_group": "0"}, frame, names)


def look(text: str, /, **values: Any) -> Any:
    """The value of `text` in a frame whose locals are `values`."""
    return evaluate_at(stop_at(frame_with(values)), text)


def frame_with(values: dict[str, Any]) -> FrameType:
    """A frame that has returned, with these locals."""
    body = f"def f({', '.join(values)}): return here()"
    scope: dict[str, Any] = {"here": lambda: sys._getframe(1)}
    exec(body, scope)
    frame = scope["f"](**values)
    assert isinstance(frame, FrameType)
    return frame


def test_what_prismdbg_wraps_is_seen_as_if_it_was_not_wrapped() -> None:
    scope: dict[str, Any] = {}
    wrapper = compile("def wrapped(run): return run()", "/x/prismdbg/rank/recording/w.py", "exec")
    exec(wrapper, scope)
    kept = "the caller's"

    def while_it_runs() -> tuple[list[str], Any, dict[str, Any]]:
        stop = stop_at(sys._getframe())
        assert stop.frame is not None and stop.frame.f_back is not None
        assert stop.frame.f_back.f_code.co_name == "wrapped", "it is there"
        names = [each["name"] for each in stack_of(stop.frame)]
        source = source_at(stop, 1, 0)
        return names, evaluate_at(stop, "kept", 1), source

    names, value, source = scope["wrapped"](while_it_runs)
    assert names[:2] == ["while_it_runs", "test_what_prismdbg_wraps_is_seen_as_if_it_was_not_wrapped"]
    assert value == render(kept) and source["filename"] == __file__


def test_what_was_sent_lies_where_the_program_has_it() -> None:
    """`input` is a copy of before the answer, in memory of prismdbg's own."""
    bucket = torch.arange(8.0)
    sent = bucket[2:]
    stop = replace(stop_at(sys._getframe(), input=[sent.clone()], out=[sent]), sent=(sent,))
    for text in ("input[0]", "input[0][1:3]", "out[0]"):
        assert address_of(stop, text)["address"] == sent.data_ptr()
    assert address_of(stop, "local.bucket")["address"] == bucket.data_ptr()


@pytest.mark.parametrize(
    ("answered", "synthesized", "role"),
    [(True, False, "recorded"), (True, True, "synthesized"), (False, False, "not answered")],
)
def test_how_a_peer_is_played_is_known_once_it_has_answered(answered: bool, synthesized: bool, role: str) -> None:
    stop = replace(stop_at(None, synthesized=synthesized), answered=answered)
    assert [member["role"] for member in peers_at(stop, Job(2).logs[0])["members"]] == ["this rank", role]


def test_names_come_from_the_stop_then_the_frame_then_the_module() -> None:
    step, mine = 41, 7  # noqa: F841  read through the frame
    stop = stop_at(sys._getframe(), step=3)
    assert evaluate_at(stop, "step")["value"] == 3
    assert evaluate_at(stop, "step")["hidden"] == ["step"]
    assert evaluate_at(stop, "local.step")["value"] == 41
    assert evaluate_at(stop, "mine + 1")["value"] == 8
    assert evaluate_at(stop, "Moment")["text"] == "prismdbg.model.moment.Moment"


def test_frames_further_out() -> None:
    outer = "seen from outside"  # noqa: F841

    def inner() -> Stop:
        return stop_at(sys._getframe())

    stop = inner()
    assert evaluate_at(stop, "outer", 1)["value"] == "seen from outside"
    assert evaluate_at(stop, "outer", 0)["value"] == "seen from outside", "as in a stop's condition"
    assert evaluate_at(stop, "local.outer", 0)["value"] == "seen from outside"
    with pytest.raises(UsageError, match="unknown name 'otter'"):
        evaluate_at(stop, "otter", 0)
    with pytest.raises(UsageError, match="unknown name 'allocated'") as refused:
        evaluate_at(stop, "allocated > 2GiB")
    assert "trace on" in refused.value.hint
    for number in (-1, 10_000):
        with pytest.raises(UsageError):
            evaluate_at(stop, "outer", number)


def test_an_exception_that_came_through_a_generator_keeps_all_its_frames() -> None:
    """A generator that has ended no longer knows who called it, and no frame outside of it was to be chosen."""

    def broken() -> Iterator[int]:
        yield from (1 // (2 - number) for number in range(4))

    def caught_once() -> None:
        wanted = "outside of the generator"
        try:
            list(broken())
        except ZeroDivisionError as error:
            raise error  # which notes this frame twice
        assert wanted

    try:
        caught_once()
    except ZeroDivisionError as error:
        trace = error.__traceback__
    stop = replace(stop_at(innermost(trace)), trace=trace)
    names = [frame.f_code.co_name for frame in frames_of(stop)]
    here = "test_an_exception_that_came_through_a_generator_keeps_all_its_frames"
    assert names[:4] == ["<genexpr>", "broken", "caught_once", here]
    assert names.count(here) == 1 and len(names) > 10  # those around it, too
    assert "outside of the generator" in str(evaluate_at(stop, "wanted", 2))
    assert "caught_once" not in [frame["name"] for frame in stack_of(stop.frame)]


def test_a_tensor() -> None:
    x = torch.arange(64, dtype=torch.float32).reshape(8, 8).requires_grad_()
    value = look("x", x=x)
    assert (value["shape"], value["dtype"], value["device"]) == ([8, 8], "float32", "cpu")
    assert value["requires_grad"] is True
    assert value["stats"] == {
        "nan": 0,
        "inf": 0,
        "min": 0.0,
        "max": 63.0,
        "mean": 31.5,
        "std": pytest.approx(float(x.std(correction=0).detach())),
    }
    assert value["histogram"] == {"low": 0.0, "high": 63.0, "counts": [4] * 16}
    assert value["values"] == x.tolist() and value["slice"] == ""


def test_a_tensor_with_what_json_does_not_know() -> None:
    value = look("x", x=torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 3.0]))
    assert value["stats"] == {"nan": 1, "inf": 2, "min": 1.0, "max": 3.0, "mean": 2.0, "std": 1.0}
    assert value["values"] == [1.0, "nan", "inf", "-inf", 3.0]
    json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0),
        torch.empty(3, 0, 2),
        torch.tensor(3),
        torch.full((4,), float("nan")),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j, 3j]),
        torch.ones(4, dtype=torch.bfloat16),
        torch.ones(4, dtype=torch.float8_e4m3fn),
        torch.tensor([1, 2], dtype=torch.uint16),
        torch.tensor([2**63 - 1, -(2**63)]),
        torch.tensor([1e308, -1e308], dtype=torch.float64),
        torch.ones(3, 3).to_sparse(),
        torch.empty(2, device="meta"),
        torch.ones(2, 3, 4, 5).transpose(0, 3),
        torch.ones(1).expand(100, 100),
    ],
)
def test_every_kind_of_tensor_is_shown(tensor: torch.Tensor) -> None:
    value = look("x", x=tensor)
    assert value["kind"] == "tensor" and value["shape"] == list(tensor.shape)
    json.dumps(value, allow_nan=False)


def test_large_tensors_are_measured_in_pieces_like_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(7, 11, 13, dtype=torch.float64)
    x[2, 3, 4] = float("nan")
    whole = [
        look(text, x=view) for view in (x, x.transpose(0, 2)) for text in ("x", "sum(x)", "first_nan(x)", "norm(x)")
    ]
    monkeypatch.setattr("prismdbg.rank.program.tensor_parts.CHUNK", 10)
    parts = [
        look(text, x=view) for view in (x, x.transpose(0, 2)) for text in ("x", "sum(x)", "first_nan(x)", "norm(x)")
    ]
    for one, other in zip(whole, parts, strict=True):
        assert one.get("histogram") == other.get("histogram")
        assert one.get("values") == other.get("values")
        assert one.get("stats") == pytest.approx(other.get("stats"))


def test_answers_are_bounded() -> None:
    nest: Any = []
    for _ in range(50):
        nest = [nest] * 100
    for value in (nest, "x" * 10**6, b"x" * 10**6, 1 << 10**6, [torch.ones(1)] * 10**5, torch.ones(10**6)):
        assert len(json.dumps(look("v", v=value))) < 100_000
    assert look("v", v=torch.ones(1000, 1000))["slice"] == "[:8, :8]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nan(x)", True),
        ("nan(y)", False),
        ("inf(x)", False),
        ("finite([y, y])", True),
        ("finite(x)", False),
        ("first_nan(x)", (1, 2)),
        ("first_nan([y, x])", (1, 1, 2)),
        ("first_nan(y)", None),
        ("max(y)", 5.0),
        ("max(y, 7)", 7.0),
        ("min([y, i])", 0.0),
        ("max(i)", 2**53 + 1),
        ("sum(i)", 2**53 + 3),
        ("mean(y)", 2.5),
        ("std(y)", pytest.approx(1.7078251)),
        ("norm([y, y])", pytest.approx(10.4880885)),
        ("shape(y)", (2, 3)),
        ("shape([y])", (2, 3)),
        ("dtype(y)", "float32"),
        ("numel([y, i])", 8),
        ("len(y)", 2),
        ("any(y)", True),
        ("all(y)", False),
        ("any(y > 4)", True),
        ("all(y[0] < 3)", True),
        ("abs(-3)", 3),
        ("max(abs(0 - y))", 5.0),
        ("y[1, 1:][0] == 4", True),
    ],
)
def test_functions(text: str, expected: Any) -> None:
    y = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    x = y.clone()
    x[1, 2] = float("nan")
    i = torch.tensor([2, 2**53 + 1])
    value = look(text, x=x, y=y, i=i)
    if value["kind"] == "tensor":
        assert value["values"] == expected
    elif value["kind"] == "sequence":
        assert tuple(item["value"] for item in value["items"]) == expected
    else:
        assert value["value"] == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("max([])", "max needs at least one value"),
        ("nan(s)", "a str contains no numbers"),
        ("shape(s)", "not a tensor"),
        ("y and 1", "ambiguous"),
        ("big[:, None] * big[None, :]", "elements"),
        ("array[:, None] * array", "elements"),
        ("big[:, None] + array", "elements"),
        ("array == big[:, None]", "elements"),
        ("array[:, None] == listed", "elements"),
        ("big[:, None] in big", "elements"),
        ("nan(meta)", "cannot be read"),
        ("y.nothing", "has no attribute"),
        ("y[9]", "IndexError"),
    ],
)
def test_refusals(text: str, word: str) -> None:
    values = {"s": "text", "y": torch.ones(3), "big": torch.empty(1 << 20), "meta": torch.empty(1, device="meta")}
    values |= {"array": numpy.ones(1 << 20), "listed": [0.5] * 50_000}
    with pytest.raises(UsageError, match=word):
        look(text, **values)


def test_modules_and_objects_without_running_their_code() -> None:
    @dataclass
    class Config:
        width: int = 64

        def __repr__(self) -> str:
            raise AssertionError("the program's code ran")

        @property
        def dangerous(self) -> None:
            raise AssertionError("the program's code ran")

    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    value = look("m", m=model)
    assert (value["kind"], value["parameters"], value["training"]) == ("module", 9, True)
    assert [name for name, _ in value["children"]] == ["0", "1"]
    shown = look("[c]", c=Config())["items"][0]
    assert shown["fields"] == [["width", {"kind": "scalar", "type": "int", "value": 64}]]


def test_no_random_number_is_used_and_no_graph_is_built() -> None:
    weight = torch.ones(2, requires_grad=True)
    torch_before, python_before = torch.get_rng_state(), random.getstate()
    assert look("w[0]", w=weight) == look("w[0]", w=weight)
    assert torch.equal(torch.get_rng_state(), torch_before) and random.getstate() == python_before
    assert look("w * 2", w=weight)["requires_grad"] is False
    assert torch.is_grad_enabled() and not is_quiet()


def test_a_collective_meanwhile_is_refused() -> None:
    refuse_collective("all_reduce")
    with quiet(), pytest.raises(UsageError, match="all_reduce"):
        refuse_collective("all_reduce")


def test_looking_keeps_nothing_alive() -> None:
    """A local that the program drops after the look is gone, though Python keeps a snapshot of a frame's locals."""

    class Thing:
        pass

    def program() -> bool:
        thing = Thing()
        gone = weakref.ref(thing)
        stop = stop_at(sys._getframe())
        assert evaluate_at(stop, "thing")["kind"] == "object"
        locals_at(stop, 0)
        with pytest.raises(UsageError):
            evaluate_at(stop, "thing.missing")
        del thing
        gc.disable()
        try:
            return gone() is None
        finally:
            gc.enable()

    assert program()


def test_the_programs_own_dict_of_locals_is_left_alone() -> None:
    def program() -> dict[str, Any]:
        kept = 5
        mine = locals()
        evaluate_at(stop_at(sys._getframe()), "kept")
        return mine

    assert program()["kept"] == 5


def test_a_defaultdict_does_not_grow() -> None:
    table: defaultdict[str, int] = defaultdict(int)
    with pytest.raises(UsageError, match="unknown key"):
        look("t['x']", t=table)
    assert not table


def test_locals_say_what_they_are() -> None:
    listed = locals_at(stop_at(frame_with({"x": torch.ones(2, 3), "n": "text"}), out=[torch.ones(1)]), 0)
    assert [(item["from"], item["name"], item["text"]) for item in listed] == [
        ("local", "x", "float32[2, 3] cpu"),
        ("local", "n", "'text'"),
        ("stop", "out", "list of 1"),
    ]


def test_locals_say_which_are_tensors_also_of_the_programs_own_classes() -> None:
    class Weight(torch.Tensor): ...

    class Pretends:
        __class__ = torch.Tensor  # type: ignore[assignment]

    names = {
        "own": torch.ones(2).as_subclass(Weight),
        "of_torch": torch.nn.Parameter(torch.ones(2)),
        "not_one": Pretends(),
        "n": [1],
    }
    listed = locals_at(stop_at(frame_with(names), out=[torch.ones(1)]), 0)
    assert [item["name"] for item in listed if item["tensor"]] == ["own", "of_torch"]


def test_many_locals_leave_room_for_the_events_names() -> None:
    names = [item["from"] for item in locals_at(stop_at(frame_with({f"x{n}": n for n in range(300)}), op="barrier"), 0)]
    assert (names.count("local"), names[-1]) == (200, "stop")


def test_source_around_the_line_that_is_executed() -> None:
    stop = stop_at(sys._getframe())  # this line is in the middle
    source = source_at(stop, 0, 2, sys._getframe().f_lineno - 1)
    assert source["filename"] == __file__
    assert "this line is in the middle" in source["lines"][2] and len(source["lines"]) == 5
    assert source_at(stop, 0, 10**9)["first"] == 1
    behind = source_at(stop, 0, 2, 10**6)
    assert behind["lines"] == [] and behind["length"] == len(Path(__file__).read_text().splitlines())
    assert len(source_at(stop, 0, 10**9)["lines"]) <= 401
    assert source_at(stop_at(frame_with({})), 0, 2)["lines"] == []
    assert source_at(stop_at(None), 0, 2)["lines"] == []


def test_a_thread_without_python_frames_shows_where_the_main_thread_waits() -> None:
    """Code with our file name in a bare thread stands for a kernel that the autograd engine calls."""
    seen: queue.SimpleQueue[FrameType | None] = queue.SimpleQueue()
    scope = {"program_frame": program_frame, "seen": seen}
    exec(compile("def kernel(): seen.put(program_frame())", "/x/prismdbg/rank/c10d/kernels.py", "exec"), scope)
    _thread.start_new_thread(cast(Any, scope["kernel"]), ())
    frame = seen.get(timeout=10)
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    assert "test_a_thread_without_python_frames_shows_where_the_main_thread_waits" in names


def test_without_a_frame_only_the_stop_is_known() -> None:
    stop = stop_at(None, op="barrier")
    assert evaluate_at(stop, "op == 'barrier'")["value"] is True
    with pytest.raises(UsageError) as caught:
        evaluate_at(stop, "x")
    assert "op" in caught.value.hint


def test_keys_that_are_tensors_are_told_apart() -> None:
    """As in the state of an optimizer."""
    found = render({torch.ones(2): 1, torch.ones(2): 2, "step": 3})
    assert [key for key, _ in found["items"]] == ["0: float32[2] cpu", "1: float32[2] cpu", "'step'"]


def test_a_float_that_is_not_finite_is_told_from_a_text() -> None:
    class Word(str):
        __slots__ = ()

    assert render(numpy.float64("nan"))["is_float"] and render(float("-inf"))["is_float"]
    assert not any("is_float" in render(value) for value in (Word("nan"), "inf", numpy.float64(1.5), 2.0))
