"""`prismdbg inspect`: what a capsule holds, from its manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from prismdbg.capsule import layout
from prismdbg.capsule.checked_json import parse
from prismdbg.capsule.manifest import Manifest, Origin
from prismdbg.capsule.stacks import MAX_BYTES, JobStacks
from prismdbg.checkpoint.gpu_part import MAX_PART_BYTES, PART, driver_text, parse_part
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.capsule_or_run import CAPSULE_OR_RUN, RANK_OF_RUN, shown_capsule_at
from prismdbg.cli.terminal import long_work
from prismdbg.diagnosis.stack_positions import position_lines
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture.secret_search import report, to_json
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.inventory import disk_bytes
from prismdbg.jobs.storage.pack import opened, read_manifest, read_part
from prismdbg.model.plurals import counted
from prismdbg.render import console

UNSEARCHED_SHOWN = 20


@click.command()
@CAPSULE_OR_RUN
@RANK_OF_RUN
@click.option("--json", "as_json", is_flag=True, help="Print the manifest, or the list of --secrets, as JSON.")
@click.option("--files", is_flag=True, help="Also list every file with its size.")
@click.option("--secrets", is_flag=True, help="List where CAPSULE contains secrets, and where secrets were redacted.")
@archive_keys
def command(capsule: Path, rank: int | None, as_json: bool, files: bool, secrets: bool, keys: Keys) -> None:
    """Show the contents of CAPSULE (folder or packed file).

    Example: `prismdbg inspect CAPSULE --secrets`

    It reads only the manifest, the stacks of a hang, and what a checkpoint says about GPUs; `verify` checks the rest.
    With --secrets, it searches the whole capsule: variables, arguments, files, notes, received objects and raw memory.
    """
    with long_work.shown():
        found = shown_capsule_at(capsule, rank)
    if secrets:
        _show_secrets(found, keys, as_json=as_json)
        return
    manifest = read_manifest(found, keys)
    if as_json:
        console.emit_json(manifest.to_json())
        return
    quiet = replace(keys, say=lambda _: None)  # who signed was said
    rows = [*_rows(manifest, found), *_gpu_state(found, manifest, quiet), *_stacks(found, manifest, quiet)]
    console.emit(console.pairs(rows))
    if files:
        rows = [(console.size(entry.size_bytes), name) for name, entry in sorted(manifest.files.items())]
        console.emit("\n" + console.columns(("size", "file"), rows, right=("size",)))


def _show_secrets(path: Path, keys: Keys, *, as_json: bool) -> None:
    with long_work.shown(), opened(path, keys) as whole:
        if whole.manifest.contains_raw_memory:
            console.say(f"searching {console.size(whole.manifest.size_bytes)}, including the rank's raw memory")
        found = report(whole)
    if as_json:
        console.emit_json({"findings": to_json(found.findings), "unsearched": list(found.unsearched)})
        return
    rows = [(finding.state, finding.place, finding.what) for finding in found.findings]
    console.emit(
        console.columns(("state", "place", "what"), rows) if rows else "no secrets found, but the rules miss some"
    )
    for text in found.unsearched[:UNSEARCHED_SHOWN]:
        console.say(f"not searched completely: {text}")
    if more := len(found.unsearched[UNSEARCHED_SHOWN:]):
        console.say(f"and {more} more: --json lists all")
    console.say(f"{len(rows) - len(found.kept)} redacted, {len(found.kept)} kept")


def _rows(manifest: Manifest, path: Path) -> list[tuple[str, str]]:
    incident = manifest.incident
    at = f" at {incident.moment}" if incident.moment else ""
    return [
        ("job", manifest.job),
        ("rank", f"{manifest.rank} of {manifest.world_size}"),
        *([("emulated", f"emulated, without real peers: {manifest.emulated}")] if manifest.emulated else []),
        ("created", console.when(manifest.created_ns)),
        ("incident", f"{incident.kind}{at}" + (f": {incident.text}" if incident.text else "")),
        ("calls", f"{manifest.moment_a} to {manifest.moment_b}"),
        ("origin", _origin(manifest)),
        *([("replay", manifest.not_replayable)] if manifest.not_replayable else []),
        ("groups", "\n".join(f"{g.title}: {_ranks(g.ranks)} ({g.backend or '?'})" for g in manifest.groups)),
        ("devices", ", ".join(manifest.device_kinds)),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(manifest.versions.items()))),
        ("hardware", ", ".join(f"{name} {value}" for name, value in sorted(manifest.hardware.items()))),
        ("size", ", ".join(_sizes(manifest, path))),
        *(("note", text) for text in manifest.notes),
    ]


def _gpu_state(capsule: Path, manifest: Manifest, keys: Keys) -> list[tuple[str, str]]:
    """With what a restore needs, where the checkpoint has the state of a GPU."""
    name = f"{layout.CHECKPOINT}/{PART}"
    data = read_part(capsule, name, MAX_PART_BYTES, keys) if name in manifest.files else None
    if data is None:
        is_on_gpu = manifest.origin is Origin.IMAGE and "cuda" in manifest.device_kinds
        return [("GPU state", "unknown: the checkpoint does not name the driver and the GPUs")] if is_on_gpu else []
    try:
        part = parse_part(data, capsule / name)
    except CapsuleError as error:  # all else that the capsule has is to be seen all the same
        return [("GPU state", f"{error}\ntry: {error.hint}")]
    gpus = ", ".join(dict.fromkeys(part.gpus)) or "unknown GPUs"
    processes = counted(len(part.pids), "process", "processes")
    driver = driver_text(part.driver)
    return [("GPU state", f"of {processes}, on {gpus}, {driver}\na replay needs the same driver and GPUs")]


def _stacks(capsule: Path, manifest: Manifest, keys: Keys) -> list[tuple[str, str]]:
    """Where each rank stood at the hang."""
    data = read_part(capsule, layout.STACKS, MAX_BYTES, keys) if layout.STACKS in manifest.files else None
    if data is None:
        return []
    taken = JobStacks.from_fields(parse(data, f"{capsule}: {layout.STACKS}"))
    return [("stacks", "\n".join(position_lines(taken.ranks)))]


def _origin(manifest: Manifest) -> str:
    memory = "contains the rank's raw memory" if manifest.contains_raw_memory else "contains no raw memory"
    return f"{manifest.origin.word}, {memory}"


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return " ".join(map(str, ranks))


def _sizes(manifest: Manifest, path: Path) -> list[str]:
    """Of all files, what `list` says, and of the parts that count."""
    parts = {
        "checkpoint": layout.CHECKPOINT,
        "log": layout.LOG,
        "files": layout.FILES,
        "memory": layout.MEMORY,
        "telemetry": layout.TELEMETRY,
    }
    sizes = {
        label: sum(e.size_bytes for name, e in manifest.files.items() if name.startswith(folder + "/"))
        for label, folder in parts.items()
    }
    whole = [f"{console.size(manifest.size_bytes)} of files", f"{console.size(disk_bytes(path))} on disk"]
    return [*whole, *(f"{label} {console.size(n)}" for label, n in sizes.items() if n)]
