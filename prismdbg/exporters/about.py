"""What a page for a ticket says of a recording besides its logs: what ran where, versions, and capsules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import Any

from prismdbg.capsule.manifest import Manifest
from prismdbg.capsule.rank_json import variables_of
from prismdbg.capsule.secrets.masking import (
    known_values,
)
from prismdbg.exporters.source import Source
from prismdbg.jobs.storage.job_nodes import supervisor_report
from prismdbg.jobs.storage.run_folder import RunFolder, read_if_whole
from prismdbg.model.durations import duration
from prismdbg.render.console import when

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """`facts`: names and values. `capsules`: paths. `problems`: as the supervisors said them. known: values that are
    secret, of the ranks' environments; they may stand in no page."""

    facts: Rows
    capsules: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


def about(path: Path, source: Source) -> About:
    """Of what `source` was read from. Files that are missing or damaged say nothing."""
    if source.manifest is not None:
        return About(facts=tuple(_of_capsule(source.manifest)), capsules=(path,))
    run = RunFolder(path.resolve())
    described, supervisor = read_if_whole(run.run_json), supervisor_report(run)
    ranks = [read_if_whole(folder / "rank.json") for folder in run.rank_folders()]
    variables = [(each, rank) for rank in ranks for each in (rank.get("environment", {}), variables_of(rank))]
    capsules = (run.capsules / Path(name).name for name in supervisor.get("capsules", []))
    known = {value for each, rank in variables for value in known_values(each, rank.get("orig_argv", []))}
    return About(
        facts=tuple(_of_run(described, supervisor, ranks)),
        capsules=tuple(capsule for capsule in capsules if capsule.exists()),
        problems=tuple(map(str, supervisor.get("problems", []))),
        known=tuple(sorted(known)),
    )


def _of_capsule(manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield "job", manifest.job
    yield "rank", f"{manifest.rank} of {manifest.world_size}"
    if manifest.emulated:
        yield "emulated", f"without real peers: {manifest.emulated}"
    yield "captured", when(manifest.created_ns)
    yield "calls", f"{manifest.moment_a} to {manifest.moment_b}, origin {manifest.origin.word}"
    if manifest.not_replayable:
        yield "replay", manifest.not_replayable
    yield from _versions(manifest.versions, manifest.hardware)
    for note in manifest.notes:
        yield "note", note


def _of_run(
    run: Mapping[str, Any], supervisor: Mapping[str, Any], ranks: list[dict[str, Any]]
) -> Iterator[tuple[str, str]]:
    if command := run.get("command"):
        yield "command", join(map(str, command))
    if cwd := run.get("cwd"):
        yield "directory", str(cwd)
    started, ended = run.get("started_wall_ns", 0), supervisor.get("ended_wall_ns", 0)
    if started:
        yield "started", when(started)
    if started and ended:
        yield "ended", f"{when(ended)}, after {duration((ended - started) / 1e9)}"
    if "exit_code" in supervisor:
        yield "exit code", str(supervisor["exit_code"])
    for rank in ranks[:1]:
        yield from _versions(rank.get("versions", {}), rank.get("hardware", {}))


def _versions(versions: Mapping[str, Any], hardware: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for title, found in (("versions", versions), ("machine", hardware)):
        if found:
            yield title, ", ".join(f"{name} {value}" for name, value in sorted(found.items()))
