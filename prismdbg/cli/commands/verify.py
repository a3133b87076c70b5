"""`prismdbg verify`: hashes, completeness, and whether the log covers what is to be replayed."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.capsule.verify import Finding, Severity
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
    if as_json:
        console.emit_json(_json(capsule, found))
    else:
        for finding in found:
            console.emit(f"{_WORDS[finding.severity]}  {finding}")
    if wrong := _wrong(capsule, found):
        console.say(wrong)
        return ExitCode.BAD_CAPSULE
    files, size_bytes = whole.manifest.files, whole.manifest.size_bytes
    console.say(f"complete: {counted(len(files), 'file')}, {console.size(size_bytes)}, ready to replay")
    return ExitCode.OK


def _json(capsule: Path, found: list[Finding]) -> dict[str, object]:
    severities = {finding.severity for finding in found}
    return {
        "capsule": str(capsule),
        "whole": Severity.FATAL not in severities,
        "replayable": severities.isdisjoint((Severity.FATAL, Severity.INCOMPLETE)),
        "findings": [{"severity": f.severity, "where": f.where, "text": f.text} for f in found],
    }


def _wrong(capsule: Path, found: list[Finding]) -> str:
    """The error, and what to do; empty where there is none."""
    if bad := sum(finding.severity is Severity.FATAL for finding in found):
        return (
            f"error: {capsule} has {counted(bad, 'fault')}\n  try: capture the rank again, or fetch the capsule again"
        )
    if any(finding.severity is Severity.INCOMPLETE for finding in found):
        return (
            f"error: {capsule} is unaltered but incomplete\n"
            "  try: record with a larger --window, or put back the files that it names; see `lack` above"
        )
    return ""
