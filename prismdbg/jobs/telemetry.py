"""The readings that were recorded with a job, of a RUN or of a capsule."""

from __future__ import annotations

from pathlib import Path

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.errors import UsageError
from prismdbg.jobs.capture.packed_telemetry import packed_telemetry
from prismdbg.jobs.storage.job_nodes import node_states
from prismdbg.jobs.storage.job_telemetry import JobTelemetry, all_telemetry
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.telemetry.series import Telemetry, merged, readable


def telemetry_of_capsule(capsule: Capsule, path: Path) -> Telemetry:
    """`path`: as the capsule was named. `UsageError` where it has none, `CapsuleError` where none can be read."""
    if (found := packed_telemetry(capsule)) is None:
        raise _none(path)
    return readable(found)


def telemetry_of_run(run: RunFolder, node: str | None = None) -> Telemetry:
    """Of one node, or of all as of one. `UsageError` where there is none, `CapsuleError` where none can be read."""
    nodes = JobTelemetry(run, node_states(run), at_once=1) if node is not None else all_telemetry(run)
    if not nodes:
        raise _none(run.path)
    if node is not None and node not in nodes:
        known = ", ".join(filter(None, nodes))
        hint = f"choose one of the nodes: {known}" if known else "leave --node out: one node alone was recorded"
        raise UsageError(f"no telemetry of node {node}", hint=hint)
    return readable(nodes[node] if node is not None else merged(nodes))


def _none(path: Path) -> UsageError:
    return UsageError(f"{path} contains no telemetry", hint="record the job with --telemetry")
