"""Live blocks as a flame graph that speedscope reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_memory_trace import MAIN, OWN, training
from traces import TraceBuilder

from prismdbg.cli.main import cli
from prismdbg.errors import UsageError
from prismdbg.memory.flame import SCHEMA, flame
from prismdbg.memory.live import live_at
from prismdbg.memory.trace import open_trace


def stacks(found: dict[str, Any]) -> dict[tuple[str, ...], int]:
    """By the names of a stack, outermost first."""
    (profile,) = found["profiles"]
    frames = found["shared"]["frames"]
    names = [tuple(frames[number]["name"] for number in sample) for sample in profile["samples"]]
    assert len(set(names)) == len(names)
    return dict(zip(names, profile["weights"], strict=True))


def test_bytes_are_those_of_the_live_blocks(tmp_path: Path) -> None:
    trace = open_trace(training(TraceBuilder(tmp_path / "trace")))
    live = live_at(trace)
    found = flame(live, "x")
    (profile,) = found["profiles"]
    assert (found["$schema"], profile["unit"], profile["type"]) == (SCHEMA, "bytes", "sampled")
    assert sum(profile["weights"]) == profile["endValue"] == live.program_bytes + live.backend_bytes
    by_stack = stacks(found)
    (own,) = (stack for stack, size in by_stack.items() if size == 30)
    assert own == ("main", "forward", "forward", "aten::linear", "aten::addmm")
    assert {"name": OWN.name, "file": OWN.filename, "line": OWN.line} in found["shared"]["frames"]
    assert {"name": MAIN.name, "file": MAIN.filename, "line": MAIN.line} in found["shared"]["frames"]


def test_nothing_live_is_a_graph_of_nothing(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path / "trace")
    builder.operator("aten::mm")
    found = flame(live_at(open_trace(builder.write())), "x")
    assert found["profiles"][0]["samples"] == []


def test_the_command_writes_it(tmp_path: Path) -> None:
    trace = training(TraceBuilder(tmp_path / "trace"))
    out = tmp_path / "out.speedscope.json"
    said = CliRunner().invoke(cli, ["memory", str(trace), "--flame", str(out)])
    assert said.exit_code == 0, said.output
    at_peak = json.loads(out.read_text())
    assert at_peak["profiles"][0]["name"].startswith("live at the peak, ")
    assert 500 in stacks(at_peak).values()
    CliRunner().invoke(cli, ["memory", str(trace), "--at", "1.1", "--flame", str(out)])
    assert 500 not in stacks(json.loads(out.read_text())).values()


def test_a_difference_has_no_flame_graph(tmp_path: Path) -> None:
    trace = training(TraceBuilder(tmp_path / "trace"))
    said = CliRunner().invoke(cli, ["memory", str(trace), "--diff", "0.1", "1.1", "--flame", str(tmp_path / "x")])
    assert isinstance(said.exception, UsageError)
    with pytest.raises(FileNotFoundError):
        (tmp_path / "x").read_text()
