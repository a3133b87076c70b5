"""`prismdbg verify`: hashes, completeness, and whether the log covers what is to be replayed."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.capsule.verify import Severity
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.jobs.storage.sealed import Keys
from prismdbg.jobs.storage.verify_parts import all_findings
from prismdbg.model.counted import counted
from prismdbg.render import console

_WORDS = {Severity.FATAL: "bad ", Severity.INCOMPLETE: "lack", Severity.NOTE: "note"}


@click.command()
@click.argument("capsule", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@archive_keys
def command(capsule: Path, as_json: bool, keys: Keys) -> int:
    """Check that CAPSULE, a folder or a packed file, is complete, unaltered and replayable.

    The exit code is 0 if it is, and 3 if it is not. Notes are not faults.
    """
    with opened(capsule, keys) as whole:
        found = list(all_findings(whole.path))
    bad = sum(finding.severity is Severity.FATAL for finding in found)
    incomplete = any(finding.severity is Severity.INCOMPLETE for finding in found)
    if as_json:
        listed = [{"severity": f.severity, "where": f.where, "text": f.text} for f in found]
        console.emit_json(
            {"capsule": str(capsule), "whole": not bad, "replayable": not (bad or incomplete), "findings": listed}
        )
    else:
        for finding in found:
            console.emit(f"{_WORDS[finding.severity]}  {finding}")
    if bad:
        console.say(
            f"error: {capsule} is damaged: {bad} faults\n  try: capture the rank again, or fetch the capsule again"
        )
        return ExitCode.BAD_CAPSULE
    if incomplete:
        console.say(
            f"error: {capsule} is unaltered but incomplete\n"
            "  try: record with a larger --window, or put back the files that it names; see `lack` above"
        )
        return ExitCode.BAD_CAPSULE
    manifest = whole.manifest
    console.say(
        f"complete: {counted(len(manifest.files), 'file')}, {console.size(manifest.size_bytes)}, ready to replay"
    )
    return ExitCode.OK
