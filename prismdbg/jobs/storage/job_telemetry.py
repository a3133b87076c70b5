"""Readings of the sensors of a job's nodes: `RUN/telemetry`, and below it a folder for each of several nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from prismdbg.jobs.storage.job_nodes import NodeState, node_states
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.telemetry import file_format as fmt
from prismdbg.telemetry.reader import MOST_UNPACKED_BYTES, read_telemetry
from prismdbg.telemetry.series import Telemetry

AT_ONCE = 9  # nodes whose readings a diagnosis compares


class JobTelemetry(Mapping[str, Telemetry]):
    """By node, by an empty name for a job's only one. What is asked for is read then. What was read last is kept, of at
    most `at_once` nodes, which share the memory that a reader may take."""

    def __init__(self, run: RunFolder, nodes: Sequence[NodeState], at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        folders = {"": run.telemetry, **{node.name: _folder(run, node) for node in nodes}}
        self._folders = {name: folder for name, folder in folders.items() if _has_readings(folder)}
        self._found: dict[str, Telemetry] = {}

    def __getitem__(self, node: str) -> Telemetry:
        if node not in self._found:
            most_bytes = MOST_UNPACKED_BYTES // min(max(len(self._folders), 1), self._at_once)
            while len(self._found) >= self._at_once:
                del self._found[next(iter(self._found))]
            folder = self._folders[node]
            removed = Telemetry(period_ns=0, wall_offset_ns=0, damage=f"{folder} has been removed")
            self._found[node] = read_telemetry(folder, most_bytes) or removed
        return self._found[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)


def all_telemetry(run: RunFolder) -> JobTelemetry:
    """Of all nodes, for whoever holds them all at once."""
    nodes = node_states(run)
    return JobTelemetry(run, nodes, at_once=max(len(nodes), 1))


def _folder(run: RunFolder, node: NodeState) -> Path:
    home = Path(node.local) if node.visible else run.path
    return RunFolder(run.path, home).telemetry / node.name


def _has_readings(folder: Path) -> bool:
    try:
        return any(path.name.startswith(fmt.PREFIX) for path in folder.iterdir())
    except OSError:
        return False
