"""The examples in the docstrings and the notebook, run as they are, over an incident that was really recorded."""

from __future__ import annotations

import doctest
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from chain import Taken
from jobs import ROOT

import prismdbg
from prismdbg.api import replay

pytestmark = [pytest.mark.job, pytest.mark.criu]

NOTEBOOK = ROOT / "examples" / "notebook" / "incident.ipynb"
BOUND_S = 180


def test_examples_of_the_docstrings_do_what_they_say(
    nan_early: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "capsule").symlink_to(nan_early.capsule)
    monkeypatch.chdir(tmp_path)
    named = SimpleNamespace(open=prismdbg.open, replay=partial(prismdbg.replay, runtime="local"))
    found = doctest.testmod(prismdbg, globs={"prismdbg": named}, optionflags=doctest.ELLIPSIS)
    assert (found.attempted, found.failed) == (2, 0)


def test_examples_of_a_replay_do_what_they_say(nan_early: Taken) -> None:
    with prismdbg.replay(nan_early.capsule, runtime="local") as rank:
        found = doctest.testmod(replay, globs={"rank": rank})
    assert (found.attempted, found.failed) == (7, 0)


def test_the_notebook_runs_from_its_first_cell_to_its_last(nan_early: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="pip install nbclient ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
    monkeypatch.setenv("RUN", str(nan_early.recording.run.path))
    monkeypatch.setenv("CAPSULE", str(nan_early.capsule))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tui")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    notebook.cells[1].source = notebook.cells[1].source.replace('RUNTIME = ""', 'RUNTIME = "local"')
    assert "local" in notebook.cells[1].source
    nbclient.NotebookClient(notebook, timeout=BOUND_S, kernel_name="python3").execute()
    told = [str(part.get("text", part.get("data", ""))) for cell in notebook.cells for part in cell.get("outputs", [])]
    assert any("rank 2 sent the first NaN or Inf" in text for text in told)
    assert any("train.py:28" in text or "line=28" in text for text in told[-2:]), told[-2:]
