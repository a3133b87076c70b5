"""`prismdbg verify`: hashes, completeness, and whether the log covers what is to be replayed."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli.commands.replay import CODES
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.param_types import seconds
from prismdbg.cli.options.place_options import RUNTIME
from prismdbg.cli.terminal import long_work
from prismdbg.jobs.replay.state_check import Checked, check_state
from prismdbg.jobs.replay.verdict import Outcome
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.storage.verify import INCONCLUSIVE, Finding, Severity
from prismdbg.jobs.storage.verify_parts import all_findings
from prismdbg.model.plain_text import one_line
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.session.divergence_text import render_divergence

_WORDS = {Severity.FATAL: "bad ", Severity.INCOMPLETE: "lack", Severity.NOTE: "note"}


@click.command()
@click.argument("capsule", type=Fetched())
@click.option("--json", "as_json", is_flag=True, help="Print the findings, or the verdict of --state, as JSON.")
@click.option("--state", is_flag=True, help="Replay the steps after the newest state snapshot of a rank of this RUN.")
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="With --state, check this rank.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    metavar="N",
    help="With --state, replay N complete steps.",
)
@RUNTIME
@click.option(
    "--timeout",
    type=seconds,
    default=600.0,
    show_default=True,
    help="With --state, wait at most this long for these steps, and as long for their replay.",
)
@archive_keys
def command(
    capsule: Path,
    as_json: bool,
    state: bool,
    rank: int,
    steps: int,
    runtime: str | None,
    timeout: float,
    keys: Keys,
) -> int:
    """Check that CAPSULE (folder or packed file) is complete, unaltered and replayable.

    Example: `prismdbg verify CAPSULE`

    The exit code is 0 if all checks pass, and 3 if one fails. Notes in the output do not change the exit code. If the
    rank issued no collective between the start and the end moment, a note says that a replay is inconclusive.

    With --state, CAPSULE is the folder RUN of a job recorded with --state-every, which may still run. prismdbg replays
    the steps after the newest state snapshot, to check that they depend on nothing but the registered state. The exit
    codes are those of `prismdbg replay`.
    """
    if state:
        with long_work.shown():
            checked = check_state(
                RunFolder.existing(capsule),
                rank,
                steps=steps,
                runtime=runtime or "",
                timeout_s=timeout,
                say=console.announce,
            )
        return _told(checked, as_json=as_json)
    with long_work.shown(), opened(capsule, keys) as whole:
        found = list(all_findings(whole.path))
    wrong = _wrong(capsule, found)
    with console.also_unread():
        if as_json:
            console.emit_json(_json(capsule, found))
        else:
            for finding in found:
                console.emit(f"{_WORDS[finding.severity]}  {one_line(str(finding))}")
        files, size_bytes = whole.manifest.files, whole.manifest.size_bytes
        outlook = f"but {INCONCLUSIVE}" if _is_inconclusive(found) else "ready to replay"
        whole_capsule = f"complete: {counted(len(files), 'file')}, {console.size(size_bytes)}, {outlook}"
        console.say(*(wrong or [whole_capsule]))
    return ExitCode.BAD_CAPSULE if wrong else ExitCode.OK


def _told(checked: Checked, *, as_json: bool) -> int:
    with console.also_unread():
        if as_json:
            console.emit_json(_state_json(checked))
        else:
            _print(checked)
    return CODES[checked.verdict.outcome]


def _state_json(checked: Checked) -> dict[str, object]:
    """With the names that `replay --json` has."""
    verdict = checked.verdict
    return {
        "outcome": verdict.outcome,
        "why": verdict.why or None,
        "summary": verdict.summary,
        "moment": verdict.moment,
        "start": str(checked.start),
        "steps": checked.steps,
        "story": verdict.story,
        "notes": verdict.notes,
    }


def _print(checked: Checked) -> None:
    verdict = checked.verdict
    console.emit(render_divergence(verdict.story) if verdict.story is not None else verdict.summary)
    if verdict.outcome is Outcome.IDENTICAL:
        console.say(
            f"the registered state is all that the {counted(checked.steps, 'step')} after {checked.start} depend on"
        )
    for note in verdict.notes:
        console.say(note)


def _json(capsule: Path, found: list[Finding]) -> dict[str, object]:
    severities = {finding.severity for finding in found}
    return {
        "capsule": str(capsule),
        "whole": Severity.FATAL not in severities,
        "replayable": severities.isdisjoint((Severity.FATAL, Severity.INCOMPLETE)),
        "inconclusive": _is_inconclusive(found),
        "findings": [{"severity": f.severity, "where": f.where, "text": f.text} for f in found],
    }


def _is_inconclusive(found: list[Finding]) -> bool:
    """Whether it is known without a replay that nothing can be compared in one."""
    return any(finding.text == INCONCLUSIVE for finding in found)


def _wrong(capsule: Path, found: list[Finding]) -> list[str]:
    """The error, and what to do; empty where there is none."""
    if bad := sum(finding.severity is Severity.FATAL for finding in found):
        return [
            f"error: {capsule} has {counted(bad, 'fault')}",
            "  try: capture the rank again, or fetch the capsule again",
        ]
    if any(finding.severity is Severity.INCOMPLETE for finding in found):
        return [
            f"error: {capsule} is unaltered but incomplete",
            "  try: record with a larger --window, or put back the files that it names; see `lack` above",
        ]
    return []
