"""The checkpoints of one replayed rank on this machine's disk: whether they can be taken, their room, their removal."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from prismdbg.checkpoint import choice
from prismdbg.checkpoint.engine import bound_s
from prismdbg.errors import FacilityError, PrismError, RuntimeFailure
from prismdbg.jobs.capture.costs import SPARE_BYTES
from prismdbg.jobs.replay.replay_plan import Plan, starter_engine
from prismdbg.runtime.runtime import Runtime
from prismdbg.runtime.spec import ReplaySpec, Saving
from prismdbg.runtime.starter_control import Answer


def with_saving(plan: Plan, runtime: Runtime, folder: Path) -> tuple[Plan, str]:
    """The plan for a place where checkpoints can be taken; unchanged, and why not, where none can."""
    try:
        engine = starter_engine(choice.find().program)
    except FacilityError as error:
        return plan, str(error)
    limits, saving = plan.spec.limits, Saving(engine=engine, folder=folder)
    longest_s = max(saving.timeout_s, bound_s(min(limits.recorded_bytes, limits.memory_bytes)))
    saves = replace(plan, spec=replace(plan.spec, saving=replace(saving, timeout_s=longest_s)))
    if runtime.refuses(plan.spec) is None and (reason := runtime.refuses(saves.spec)):
        return plan, reason
    return saves, ""


class SavedCheckpoints:
    """A folder each, named by number; written by the starter (`images/starter/checkpoints.py`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def require_room(self, next_bytes: int) -> None:
        """Before one of about `next_bytes` is taken: a full disk would harm more than this replay."""
        free = shutil.disk_usage(self._folder).free
        if free < next_bytes + SPARE_BYTES:
            about = f" of about {next_bytes / 2**20:.0f} MiB" if next_bytes else ""
            raise FacilityError(
                f"no space for a checkpoint{about}: {free / 2**20:.0f} MiB are free in {self._folder}, and "
                f"{SPARE_BYTES >> 20} MiB must stay free",
                hint=f"free {-(-(next_bytes + SPARE_BYTES - free) >> 20)} MiB of disk space",
            )

    def size_bytes(self, number: int) -> int:
        return sum(path.stat().st_size for path in self._at(number).rglob("*") if path.is_file())

    def output_bytes(self, number: int) -> int:
        """How long the rank's output was."""
        return int(json.loads((self._at(number) / "facts.json").read_text())["output_bytes"])

    def remove(self, number: int) -> None:
        shutil.rmtree(self._at(number), ignore_errors=True)

    def _at(self, number: int) -> Path:
        return self._folder / str(number)


def error_of(spec: ReplaySpec, answer: Answer, what: str) -> PrismError:
    """Of one that refuses; `what` was asked of the starter, as `save the rank`."""
    if answer.log and spec.engine is not None:
        return spec.engine.explain(what, f"{answer.log}\nError (starter): {answer.refusal}\n")
    return RuntimeFailure(f"could not {what}: {answer.refusal}")
