"""A captured rank replayed from Python, forwards and backwards; a recording read beside it."""

from __future__ import annotations

import re
import textwrap
from io import StringIO
from pathlib import Path

import pytest
from chain import Taken
from rich.console import Console

import prismdbg
from prismdbg.errors import PrismError
from prismdbg.session.answers import Phase

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python.md"

pytestmark = [pytest.mark.job, pytest.mark.criu]


def test_a_nan_is_found_and_looked_at_from_python(nan_early: Taken) -> None:
    with prismdbg.open(nan_early.capsule) as recording:
        incident = recording.incidents[0].incident.moment
        assert incident is not None
        rank = recording[recording.manifest.rank]  # type: ignore[union-attr]
        assert rank.at(incident).sent_nonfinite
    with prismdbg.replay(nan_early.capsule, runtime="local") as replayed:
        number = replayed.breakpoint("nan")
        assert replayed.continue_() == incident
        assert replayed.stop is not None and replayed.stop.stops == (number,)
        shown = StringIO()
        Console(file=shown, width=200).print(replayed)
        assert f"at {replayed.moment}" in shown.getvalue() and "train.py" in shown.getvalue()
        assert replayed.value("input[0]")["stats"]["nan"] > 0
        assert "nan" in replayed.print("input[0]")
        assert any("train.py" in frame.filename for frame in replayed.stack())
        before = replayed.reverse_next()
        assert before < incident and replayed.goto(incident) == incident
        with pytest.raises(PrismError, match="no_such_name"):
            replayed.value("no_such_name")
        assert replayed.phase is Phase.STOPPED


def test_the_example_of_the_documentation_runs(nan_early: Taken, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(
        r'^    with prismdbg\.replay\("CAPSULE"\).*?(?=^\S)', PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    given = f'{str(nan_early.capsule)!r}, runtime="local"'
    exec(textwrap.dedent(example).replace('"CAPSULE"', given), {"prismdbg": prismdbg})
    assert "nan" in capsys.readouterr().out


def test_a_run_is_read_with_all_its_ranks(nan_early: Taken) -> None:
    with prismdbg.open(nan_early.recording.run.path) as recording:
        assert list(recording.ranks) == [0, 1, 2, 3]
        assert recording.why().verdicts
        received = [
            rank.received(call) for rank in recording.ranks.values() for call in rank.collectives[:2] if call.payload
        ]
        assert received and all(array.size for arrays in received for array in arrays)
