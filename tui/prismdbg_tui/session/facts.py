"""What a capsule is, in a few lines: the first thing in the console."""

from __future__ import annotations

from collections.abc import Iterator

from prismdbg.capsule.manifest import Manifest
from prismdbg_tui.drawing import figures


def facts(manifest: Manifest) -> Iterator[str]:
    at = f" at {manifest.incident.moment}" if manifest.incident.moment else ""
    yield f"{manifest.incident.kind}{at}: {manifest.incident.text}"
    yield f"A {manifest.moment_a} to B {manifest.moment_b}, from a process {manifest.origin}" + (
        f"; replayable from {manifest.replayable_from}" if manifest.replayable_from > manifest.moment_a else ""
    )
    versions = ", ".join(f"{name} {version}" for name, version in sorted(manifest.versions.items()))
    yield f"job {manifest.job}, rank {manifest.rank} of {manifest.world_size}, {versions}"
    yield f"{figures.size(manifest.size_bytes)}; made {figures.when(manifest.created_ns)}"
    if manifest.emulated:
        yield f"emulated in {manifest.emulated}: none of its peers was there"
    yield from manifest.notes
