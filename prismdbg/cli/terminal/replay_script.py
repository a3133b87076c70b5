"""What `replay --script` and `replay --source` print, and the exit codes that they end with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.replay_chosen import Chosen, cannot_tell
from prismdbg.cli.terminal.rank_output import keep_output, say_output
from prismdbg.errors import PrismError
from prismdbg.jobs.replay.source_overlay import Overlay
from prismdbg.jobs.storage.pack import opened
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.render.answer_text import answer_text
from prismdbg.script.findings import Ending, Finding, Findings, Outcome
from prismdbg.script.fix import FixVerdict, Judgement
from prismdbg.script.junit import junit, write_junit
from prismdbg.script.language import NO_SCRIPT
from prismdbg.script.reader import read_file
from prismdbg.script.scripted import Scripted, run_scripted
from prismdbg.session.divergence_text import render_divergence

MAX_NAMED = 8
_FIX_CODES = {
    Judgement.GONE: ExitCode.OK,
    Judgement.UNKNOWN: ExitCode.INCONCLUSIVE,
    Judgement.UNANSWERED: ExitCode.INCONCLUSIVE,
    Judgement.UNSEEN: ExitCode.INCONCLUSIVE,
    Judgement.NO_INCIDENT: ExitCode.INCONCLUSIVE,
    Judgement.NOT_REACHED: ExitCode.INCONCLUSIVE,
}
_UNTOLD = (Judgement.OTHER, Judgement.UNKNOWN, Judgement.NOT_REACHED)  # for git bisect
_BY_CHECKS = (Judgement.UNANSWERED, Judgement.UNSEEN, Judgement.NO_INCIDENT)  # for git bisect
_MARKS = {Outcome.HELD: "held     ", Outcome.FAILED: "FAILED   ", Outcome.UNDECIDED: "undecided"}


def look_command(capsule: Path, moment: Moment | None) -> str:
    """What opens the replay there."""
    return shlex.join(["prismdbg", "debug", str(capsule), *(["--at", str(moment)] if moment is not None else [])])


def exit_code(result: Scripted, *, edited: bool, bisect: bool) -> int:
    """A check that failed decides, then what kept others from being decided, then, of an edited program, the incident.
    With --bisect 125 where the code could not be judged: it fails otherwise than the incident, or did not come far
    enough. Of a hang or a slow rank, which no replay shows, the checks of the script alone decide there; of a capsule
    without an incident, always."""
    findings, fix = result.findings, result.fix
    looked_at = [check for check in findings.failed if check.hits]
    if bisect and not looked_at and _cannot_tell(findings, fix):
        return ExitCode.CANNOT_TELL
    if findings.failed:
        return ExitCode.FAILED
    match findings.ending:
        case Ending.DIVERGED:
            return ExitCode.DIVERGED
        case Ending.TIMEOUT:
            return ExitCode.TIMEOUT
        case Ending.LOST if fix is None or not edited:
            return ExitCode.CANNOT_TELL if bisect else ExitCode.RANK_LOST
        case Ending.INCONCLUSIVE:
            return ExitCode.CANNOT_TELL if bisect else ExitCode.INCONCLUSIVE
    code = _FIX_CODES.get(fix.judgement, ExitCode.FAILED) if fix is not None and edited else ExitCode.OK
    if fix is not None and findings.checks and fix.judgement in (_BY_CHECKS if bisect else (Judgement.NO_INCIDENT,)):
        code = ExitCode.OK
    if code == ExitCode.OK and findings.undecided:
        return ExitCode.CANNOT_TELL if bisect else ExitCode.INCONCLUSIVE
    return code


def _cannot_tell(findings: Findings, fix: FixVerdict | None) -> bool:
    if findings.ending in (Ending.TIMEOUT, Ending.NOT_STARTED, Ending.BROKEN):
        return True
    if fix is None:
        return False
    return fix.judgement in _UNTOLD or (fix.judgement in _BY_CHECKS and not findings.checks)


def replay_scripted(chosen: Chosen) -> int:
    """Reads the script before anything starts; the JUnit file is written however it ends."""
    script = read_file(chosen.script) if chosen.script is not None else NO_SCRIPT
    bound_s = min(chosen.bound_s, script.time_limit.value) if chosen.script is not None else chosen.bound_s
    result = Scripted()
    result.findings.announce(script)
    overlay: Overlay | None = None
    try:
        with opened(chosen.capsule, chosen.keys) as whole:
            chosen.check_incident(whole.manifest)
            request = chosen.request(whole)
            if (overlay := request.overlay) is not None:
                say_overlay(overlay)
            run_scripted(request, script, result, bound_s=bound_s, say=console.announce)
        code = exit_code(result, edited=chosen.is_edited, bisect=chosen.bisect)
    except PrismError as error:
        result.findings.cut_short = result.findings.cut_short or str(error)
        if not (chosen.bisect and cannot_tell(error)):
            raise
        console.announce(f"inconclusive: {error}")
        code = ExitCode.CANNOT_TELL
    finally:
        kept = keep_output(chosen.capsule, result.output)
        if chosen.junit is not None:
            report(chosen.junit, result, chosen.capsule, edited=chosen.is_edited)
    with console.also_unread():
        if chosen.as_json:
            console.emit_json(to_json(result, code, overlay, kept))
        else:
            say_output(result.output)
            show(result, chosen.capsule)
            if kept:
                console.say(f"complete output: {kept}")
    return code


def to_json(result: Scripted, code: int, overlay: Overlay | None, kept: Path | None = None) -> dict[str, Any]:
    """kept: the file of what the rank printed."""
    findings, verdict = result.findings, result.verdict
    return {
        "exit": code,
        "ending": findings.ending,
        "reached": str(findings.reached) if findings.reached is not None else None,
        "cut_short": findings.cut_short or None,
        "checks": [check.to_json() for check in findings.checks],
        "places": [place.to_json() for place in findings.places],
        "records": [record.to_json() for record in findings.records],
        "notes": [*findings.notes, *(verdict.notes if verdict is not None else ())],
        "outcome": verdict.outcome if verdict is not None else None,
        "why": (verdict.why or None) if verdict is not None else None,
        "story": verdict.story if verdict is not None else None,
        "fix": result.fix.to_json() if result.fix is not None else None,
        "source": _overlay_json(overlay) if overlay is not None else None,
        "runtime": result.runtime,
        "elapsed_s": result.elapsed_s,
        "output": result.output,
        "output_kept_at": str(kept) if kept else None,
    }


def _overlay_json(overlay: Overlay) -> dict[str, Any]:
    return {
        "folder": str(overlay.folder),
        "seen_as": str(overlay.seen_as),
        "replaced": sorted(overlay.replaced),
        "added": sorted(overlay.added),
        "unchanged": overlay.unchanged,
        "unmatched": list(overlay.unmatched),
    }


def say_overlay(overlay: Overlay) -> None:
    """Which of the user's files are used, and which are not."""
    replaced = sorted(overlay.replaced)
    files = counted(len(replaced) + overlay.unchanged, "captured file")
    console.announce(f"{overlay.folder} replaces {len(replaced)} of {files} of {overlay.seen_as}")
    for title, names in (
        ("replaced", replaced),
        ("added", sorted(overlay.added)),
        ("not used by the program, ignored", overlay.unmatched),
    ):
        if names:
            more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
            console.say(f"  {title}: {', '.join(names[:MAX_NAMED])}{more}")
    if overlay.is_empty:
        console.say("  no file differs from the captured ones: this is the recorded program")


def show(result: Scripted, capsule: Path) -> None:
    """Data on stdout: one line a check and a record, and what the whole came to."""
    findings = result.findings
    for check in findings.checks:
        _show_check(check, capsule)
    for place in findings.places:
        found = answer_text(place.answer) if place.answer is not None else f"not found: {place.why}"
        console.emit_lines([f"back to    {place.name}: {found}"])
    for record in findings.records:
        console.emit_lines([f"recorded   {record.name} at {record.moment}: {record.text}{_assumed(record.assumed)}"])
    for note in findings.notes:
        console.say(note)
    verdict = result.verdict
    if verdict is not None and verdict.story is not None:
        console.say(*render_divergence(verdict.story).splitlines())
    elif verdict is not None:
        console.say(verdict.summary)
    for note in verdict.notes if verdict is not None else ():
        console.say(note)
    if result.fix is not None:
        console.emit_lines([result.fix.text])
    if findings.checks:
        console.emit_lines([_summary(findings)])


def _show_check(check: Finding, capsule: Path) -> None:
    at = f" at {check.moment}" if check.moment is not None else ""
    times = f" (checked {check.hits} times)" if check.kind == "expect" and check.hits > 1 else ""
    console.emit_lines([f"{_MARKS[check.outcome]}  {check.title}{at}{times}{_assumed(check.assumed)}"])
    if check.outcome is Outcome.FAILED:
        lines = [*f"{check.place}: {check.text}".splitlines(), check.message]  # the script's own text may have several
        lines += [f"breakpoint: {check.stop}"] if check.stop else []
        lines += [f"  {name} = {value}" for name, value in check.values.items()]
        lines += [f"debug: {look_command(capsule, check.moment)}"]
        console.emit_lines(f"           {line}" for line in lines)


def _assumed(assumed: bool) -> str:
    return "  [depends on synthesized peers]" if assumed else ""


def _summary(findings: Findings) -> str:
    held = len(findings.checks) - len(findings.failed) - len(findings.undecided)
    parts = [f"{held} held", f"{len(findings.failed)} failed"]
    if findings.undecided:
        why = findings.cut_short or str(findings.ending)
        parts.append(f"{len(findings.undecided)} undecided: {why}")
    return f"{', '.join(parts)}; the replay reached {findings.reached}"


def report(path: Path, result: Scripted, capsule: Path, *, edited: bool) -> None:
    """The JUnit file, whatever is known by now."""
    data = junit(
        result.findings,
        suite=f"prismdbg.{capsule.name}",
        elapsed_s=result.elapsed_s,
        look=lambda at: look_command(capsule, at),
        fix=result.fix if edited else None,
    )
    write_junit(path, data)
