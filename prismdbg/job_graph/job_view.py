"""A whole job to be looked at: its graph, saved or made from an emulated run's logs, and which of its ranks ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prismdbg.capsule import layout
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import PrismError, UsageError
from prismdbg.jobs.storage.emulated_run import EmulatedRun, read_emulated
from prismdbg.jobs.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from prismdbg.jobs.storage.pass_errors import Passed
    from prismdbg.simulate.cluster.cluster import ClusterModel
    from prismdbg.simulate.graph.job_graph import JobGraph
    from prismdbg.simulate.graph.mesh import Ints

ASSUMED_CLUSTER = "no --cluster: nodes of eight, 450 GB/s inside and 50 GB/s per rank between them are assumed"

_BEGINS = b"PK\x03\x04"  # numpy writes a ZIP archive; a packed capsule begins otherwise


class NoGraph(UsageError):
    """No graph of all ranks can be built of the logs. `why`: a clause."""

    def __init__(self, why: str, *, hint: str) -> None:
        super().__init__(f"cannot build a graph of all ranks from the logs: {why}", hint=hint)
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobView:
    """`ran`: ranks that really ran, of which there is a log. stands_for: by rank who ran for it, -1 where that is not
    known. cluster_text: where the cluster's figures come from. passed: how far its paced ranks were off."""

    name: str
    graph: JobGraph
    cluster: ClusterModel
    cluster_text: str
    ran: frozenset[int]
    stands_for: Ints | None
    passed: Passed | None = None


def is_job(path: Path) -> bool:
    """A saved graph, whatever it is called, a folder with one, or an emulated run; a capsule is none, nor is a recorded
    run, also one with a graph that was built of it."""
    if path.is_file():
        return path.suffix == ".npz" or _begins_as_graph(path)
    if not path.is_dir() or (path / layout.MANIFEST).is_file():
        return False
    if RunFolder(path).run_json.is_file():
        return _emulated(path) is not None
    from prismdbg.simulate.graph import graph_file  # no run needs it

    return (path / graph_file.FILE_NAME).is_file()


def _begins_as_graph(path: Path) -> bool:
    """What is wrong with it is said when it is read."""
    try:
        with open_plain(path) as file:
            return file.read(len(_BEGINS)) == _BEGINS
    except (OSError, PrismError):
        return False


def job_view(path: Path, cluster: Path | None, say: Callable[[str], None]) -> JobView:
    """Of what `is_job`. Where no graph was built it is made of the logs, and not kept; `NoGraph` where it cannot be."""
    from prismdbg.simulate.cluster import cluster_file
    from prismdbg.simulate.cluster.cluster import example
    from prismdbg.simulate.graph import graph_file

    emulated = _emulated(path) if path.is_dir() else None
    saved = path if path.is_file() else path / graph_file.FILE_NAME
    if saved.is_file():
        graph = graph_file.load(saved)
    else:
        say(f"no {graph_file.FILE_NAME} in {path}: building the graph from the logs")
        graph = _built(path)
    same = emulated is not None and emulated.mesh.world == graph.mesh.world
    if cluster is None:
        say(ASSUMED_CLUSTER)
    return JobView(
        name=path.name or str(path),
        graph=graph,
        cluster=example() if cluster is None else cluster_file.read(cluster),
        cluster_text=ASSUMED_CLUSTER if cluster is None else str(cluster),
        ran=frozenset(emulated.ran) if emulated is not None and same else frozenset(),
        stands_for=emulated.standing_in() if emulated is not None and same else None,
        passed=emulated.passed if emulated is not None else None,
    )


def _built(path: Path) -> JobGraph:
    from prismdbg.job_graph.builder import GraphRequest, build_graph  # `is_job` is asked of every path, and needs none

    try:
        return build_graph(GraphRequest(run=path))
    except UsageError as error:
        hint = f"emulate with --classes, or run `prismdbg graph build {path} --alike AXES`"
        raise NoGraph(str(error), hint=hint) from error


def _emulated(path: Path) -> EmulatedRun | None:
    run = RunFolder(path)
    return read_emulated(RunFolder.existing(path)) if run.run_json.is_file() else None
