"""Puts into a run what a capsule of a rank can start at: checkpoints and state snapshots, of two collectives a step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from capsules import STATE, make_capsule

from prismdbg.capsule import layout
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.model.moment import Moment


def add_states(run: RunFolder, capsule: Path, *steps: int, rank: str = "0") -> None:
    """capsule: a folder that is free."""
    state = make_capsule(capsule, STATE).path / layout.STATE
    for step in steps:
        shutil.copytree(state, run.states / rank / str(step), ignore=shutil.ignore_patterns("prologue"))
        described = run.states / rank / str(step) / "state.json"
        told = json.loads(described.read_text()) | {"moment": f"{step}.0", "past_records": 2 * step}
        described.write_text(json.dumps(told))


def add_checkpoints(run: RunFolder, *moments: Moment, rank: str = "0", in_flight: tuple[int, ...] = ()) -> None:
    for moment in moments:
        folder = run.checkpoints / rank / str(moment)
        folder.mkdir(parents=True)
        told = {"moment": str(moment), "past_records": 2 * moment.step, "in_flight": in_flight, "paused_ns": 1}
        write_json(folder / "checkpoint.json", {**told, "images_bytes": 1})
