"""What a capsule is, in a few lines: the first thing in the console."""

from __future__ import annotations

from collections.abc import Iterator

from prismdbg.capsule.manifest import Manifest
from prismdbg_tui.drawing import figures


def facts(manifest: Manifest) -> Iterator[str]:
    at = f" at {manifest.incident.moment}" if manifest.incident.moment else ""
    yield f"{manifest.incident.kind}{at}: {manifest.incident.text}"
    origin = manifest.not_replayable or f"origin {manifest.origin.word}"
    yield f"{manifest.moment_a} to {manifest.moment_b}, {origin}"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(manifest.versions.items()))
    yield f"job {manifest.job}, rank {manifest.rank} of {manifest.world_size}, {versions}"
    yield f"{figures.size(manifest.size_bytes)}; created {figures.when(manifest.created_ns)}"
    if manifest.emulated:
        yield f"emulated in {manifest.emulated}, without real peers"
    yield from manifest.notes
