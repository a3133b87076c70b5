"""The debugger's verbs as methods, and values as Python has them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import prismdbg
from prismdbg.api import replay as api
from prismdbg.api.replay import Replay
from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.errors import Divergence, RankLost, UsageError
from prismdbg.model.moment import Moment
from prismdbg.session import answers
from prismdbg.session.answers import Phase
from prismdbg.session.line import parse_line
from prismdbg.session.notices import Notice, Stopped
from tests.unit.simulated_rank import SimulatedRank


class SimulatedDebugger:
    """Arrives everywhere; every line must be one of the debugger's."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.session = self
        self.moment, self.phase = Moment(0, 1), Phase.STOPPED
        self.stop: Stopped | None = None

    def do(self, text: str) -> answers.Answer:
        parse_line(text)
        self.lines.append(text)
        return answers.Arrived(phase=Phase.STOPPED, moment=Moment(3, len(self.lines)))

    def evaluate(self, text: str) -> dict[str, Any]:
        return {"kind": "scalar", "type": "float", "value": 1.5}

    def source(self) -> dict[str, Any]:
        return {"filename": "train.py", "line": 7, "function": "main", "first": 7, "lines": ["if a < b:"]}


@pytest.fixture
def rank() -> Replay:
    return Replay(SimulatedDebugger(), None, [])  # type: ignore[arg-type]


def test_each_method_is_a_line_of_the_debugger(rank: Replay) -> None:
    moved = [
        rank.next(), rank.next(3), rank.step(), rank.finish(), rank.continue_(), rank.run_to("11.1"),
        rank.goto(Moment(2, 1)), rank.reverse_next(), rank.reverse_step(2), rank.reverse_continue(),
    ]  # fmt: skip
    assert moved == [Moment(3, number) for number in range(1, 11)]
    assert rank._debugger.lines == [  # type: ignore[attr-defined]
        "next 1", "next 3", "step 1", "finish", "continue", "until 11.1",
        "goto 2.1", "reverse-next 1", "reverse-step 2", "reverse-continue",
    ]  # fmt: skip
    assert rank.value("loss") == 1.5


def test_a_notebook_shows_where_the_rank_is_stopped(rank: Replay) -> None:
    assert rank._repr_html_() == "<p>stopped at <b>0.1</b></p>"
    rank._debugger.stop = Stopped(reason="next", moment=Moment(0, 1))  # type: ignore[attr-defined]
    shown = "train.py:7 in main\n-&gt;     7  if a &lt; b:"
    assert rank._repr_html_() == f"<p>stopped at <b>0.1</b></p><pre>{shown}</pre>"


def test_wrong_words_are_errors(rank: Replay, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        rank.do("dance")
    with pytest.raises(UsageError), prismdbg.replay(tmp_path / "nowhere"):
        pass


@pytest.mark.parametrize(
    ("rendered", "value"),
    [
        ({"kind": "scalar", "type": "str", "value": "x"}, "x"),
        ({"kind": "scalar", "type": "str", "value": "inf"}, "inf"),
        ({"kind": "scalar", "type": "float", "value": "-inf"}, -math.inf),
        ({"kind": "sequence", "items": [{"kind": "scalar", "value": 1}, {"kind": "more"}]}, [1, "..."]),
        ({"kind": "mapping", "items": [["a", {"kind": "scalar", "value": None}]]}, {"a": None}),
        ({"kind": "object", "text": "Model"}, "Model"),
        ({"kind": "tensor", "shape": [2]}, {"kind": "tensor", "shape": [2]}),
    ],
)
def test_values_are_pythons(rendered: dict[str, Any], value: object) -> None:
    assert api._plain(rendered) == value


def test_elements_of_a_tensor_that_are_not_finite_are_numbers() -> None:
    stats = {"nan": 1, "inf": 2, "min": None, "max": 2.5, "mean": "inf", "std": "nan"}
    rendered = {"kind": "tensor", "dtype": "float32", "stats": stats, "values": [["nan", 1.0], ["-inf", 2.5]]}
    value = api._plain(rendered)
    (nan, one), (low, high) = value["values"]
    assert math.isnan(nan) and (one, low, high) == (1.0, -math.inf, 2.5)
    assert value["stats"]["mean"] == math.inf and math.isnan(value["stats"]["std"]) and value["stats"]["min"] is None
    assert math.isnan(api._plain({"kind": "tensor", "values": "nan", "stats": None})["values"])


@pytest.mark.parametrize("name", ["numpy.float64", "train.Loss"])
def test_a_nan_of_a_subclass_of_float_is_a_number_too(name: str) -> None:
    nan = api._plain({"kind": "scalar", "type": name, "value": "nan", "is_float": True})
    assert math.isnan(nan) and not nan < 10


def test_a_nan_of_numpy_is_a_number_also_if_an_older_rank_does_not_say_so() -> None:
    assert math.isnan(api._plain({"kind": "scalar", "type": "numpy.float64", "value": "nan"}))


def test_a_nan_is_a_number_that_compares() -> None:
    nan = api._plain({"kind": "scalar", "type": "float", "value": "nan"})
    assert math.isnan(nan) and not nan < 10


def replayed(**rank: Any) -> tuple[Replay, SimulatedRank]:
    played, notices = SimulatedRank(**rank), list[Notice]()
    debugger = Debugger(played, notices.append, recorded=played.moments, settings=Settings(bound_s=0.05))
    debugger.begin()
    return Replay(debugger, None, notices), played  # type: ignore[arg-type]


@pytest.mark.parametrize("line", ["continue_", "goto", "run_to", "next"])
def test_a_rank_that_dies_has_come_nowhere(line: str) -> None:
    rank, played = replayed()
    rank.next()
    played.kill()
    with pytest.raises(RankLost, match=r"the rank was lost at 0\.1: the connection closed") as raised:
        getattr(rank, line)(*(["3.1"] if line in ("goto", "run_to") else []))
    assert raised.value.hint
    assert rank.phase is Phase.LOST and rank.goto("0.2") == Moment(0, 2)


def test_a_replay_that_diverges_on_the_way_has_not_come_to_its_moment() -> None:
    rank, _ = replayed(diverges=True)
    assert rank.continue_() == Moment(3, 3), "to the first divergence"
    for go in (rank.goto, rank.run_to):
        rank.goto("3.2")
        with pytest.raises(Divergence, match=r"the replay diverged from the recording at 3\.3") as raised:
            go("3.3")
        assert raised.value.hint and rank.stop is not None and rank.stop.reason == "diverged"
