"""`prismdbg doctor`: what this machine can do, what it lacks, and the fix."""

from __future__ import annotations

from dataclasses import asdict

import click

from prismdbg.checkpoint import choice
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.jobs.injection import cache_dir
from prismdbg.render import console
from prismdbg.runtime.facilities import Facility, facilities

_OPTIONAL = frozenset({"gpu", "sensors", "gpu sensors"})


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(as_json: bool) -> int:
    """Check each facility of this machine, and show its purpose, its state and the fix if it is missing.

    The exit code is 0 if no required facility is missing, and 4 otherwise.
    """
    found = facilities(cache_dir(), choice.NAME, lambda: choice.find().program.version)
    lacking = [f for f in found if not f.ok and f.name.lower() not in _OPTIONAL]
    if as_json:
        console.emit_json({"facilities": [asdict(f) for f in found], "origins": _origins(found)})
        return ExitCode.LACKING if lacking else ExitCode.OK
    rows = [("ok" if f.ok else "no", f.name, f.needed_for, f.detail) for f in found]
    console.emit(console.columns(("", "facility", "needed for", "found"), rows))
    for facility in found:
        if facility.fix:
            console.emit(f"\n{facility.name}: {facility.fix}")
    for origin, can in _origins(found).items():
        console.say(f"capsules whose origin is the {origin}: {'yes' if can else 'no'}")
    return ExitCode.LACKING if lacking else ExitCode.OK


def _origins(found: tuple[Facility, ...]) -> dict[str, bool]:
    """Which origins this machine can take and replay."""
    ok = {f.name.lower() for f in found if f.ok}
    return {"checkpoint": {choice.NAME, "kernel", "capabilities"} <= ok, "program's start": "torch" in ok}
