"""What else `verify` reads: the parts of a capsule whose readers stand above the capsule itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from prismdbg.capsule import checked_json, layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.checked_json import Fields
from prismdbg.capsule.manifest import Origin
from prismdbg.checkpoint import choice
from prismdbg.checkpoint.engine import Use
from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.jobs.storage.verify import Finding, Severity, findings
from prismdbg.runtime.environment import Environment

_READERS: dict[str, Callable[[Fields], object]] = {
    layout.ENVIRONMENT: Environment.from_json,
}


def all_findings(path: Path) -> Iterator[Finding]:
    """As `findings`, and every part read as a replay or a graph would read it."""
    damaged = False
    for finding in findings(path):
        damaged |= finding.severity is Severity.FATAL
        yield finding
    if not damaged:
        capsule = Capsule.open(path)
        yield from _parts(capsule)
        yield from _images(capsule)


def _parts(capsule: Capsule) -> Iterator[Finding]:
    for name, read in _READERS.items():
        if name in capsule.manifest.files:
            try:
                read(checked_json.read(capsule.path / name))
            except CapsuleError as error:
                yield Finding(Severity.FATAL, name, str(error))


def _images(capsule: Capsule) -> Iterator[Finding]:
    """Of a process checkpoint: only the engine knows its format."""
    if capsule.manifest.origin is not Origin.IMAGE:
        return
    try:
        engine = choice.find(Use.READ)
    except FacilityError as error:
        yield Finding(Severity.NOTE, layout.CHECKPOINT, f"was not checked: {error}, {error.hint}")
        return
    try:
        engine.require_restorable(capsule.checkpoint)
    except CapsuleError as error:
        yield Finding(Severity.FATAL, layout.CHECKPOINT, str(error))
