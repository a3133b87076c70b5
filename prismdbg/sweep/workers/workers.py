"""What runs the configurations of a sweep, wherever that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from prismdbg.jobs.capture.capture import Say
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.place import Engine
from prismdbg.sweep.request import Trial
from prismdbg.sweep.workers.ray_tasks import RayTasks
from prismdbg.sweep.workers.slurm import Slurm
from prismdbg.sweep.workers.slurm_array import SlurmArray, check_none_left
from prismdbg.sweep.workers.trial_group import TrialGroup


class Workers(Protocol):
    def run(self, trials: Sequence[Trial]) -> dict[str, str]:
        """Runs all of them and marks in the sweep's folder which are complete. Returns why the others failed, by
        name."""


def workers(folder: SweepFolder, say: Say) -> Workers:
    """`UsageError` where an array of an earlier start may still run and the configurations are to run elsewhere."""
    place = folder.request.place
    if place.engine is Engine.SLURM:
        return SlurmArray(folder, Slurm(place.options), say)
    check_none_left(folder)
    if place.engine is Engine.RAY:
        return RayTasks(folder, " ".join(place.options), say)
    return TrialGroup(folder, folder.request.jobs, folder.request.bound_s, say)
