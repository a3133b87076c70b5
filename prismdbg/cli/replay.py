"""`prismdbg replay`: a captured rank again, alone, every collective compared with the record."""

from __future__ import annotations

import os
from pathlib import Path

import click

from prismdbg.cli import render
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.param_types import moment as moment_type
from prismdbg.cli.param_types import seconds
from prismdbg.cli.stop_text import source_lines
from prismdbg.errors import FacilityError, PrismError
from prismdbg.model.moment import Moment
from prismdbg.session.story import render_story
from prismdbg.workflows.compare import Outcome, Verdict, run_to_end
from prismdbg.workflows.pack import opened
from prismdbg.workflows.replay import ReplayRequest, open_replay

BISECT_SKIP = 125
_CODES = {
    Outcome.SAME: ExitCode.OK,
    Outcome.UNHUNG: ExitCode.OK,
    Outcome.NOTHING: ExitCode.OK,
    Outcome.STOPPED: ExitCode.OK,
    Outcome.DIVERGED: ExitCode.DIVERGED,
    Outcome.RANK_LOST: ExitCode.RANK_LOST,
}
OUTPUT_SHOWN_BYTES = 4000


@click.command()
@click.argument("capsule", type=click.Path(path_type=Path))
@click.option("--runtime", type=click.Choice(["docker", "local", "plain"]), help="[default: the best there is]")
@click.option("--until", type=moment_type, metavar="MOMENT", help="Stop there.")
@click.option("--strict", is_flag=True, help="Pickled objects that differ (a pid, a time) count, too.")
@click.option("--allow-writes", is_flag=True, help="Let a plain process repeat the program's side effects.")
@click.option("--timeout", type=seconds, default=3600.0, show_default=True, help="Seconds for the whole replay.")
@click.option("--bisect", is_flag=True, help="Exit 125 where this code or this machine cannot run the capsule.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def command(
    capsule: Path,
    runtime: str | None,
    until: Moment | None,
    strict: bool,
    allow_writes: bool,
    timeout: float,
    bisect: bool,
    as_json: bool,
) -> int:
    """Run the rank in CAPSULE from A to B with no network, no peers and no capabilities, and compare.

    Exits 0 when it was the run that was, or when a rank that hung was un-hung; 5 when it diverged, 3 for a bad
    capsule, 4 when this machine lacks something, 124 when the time is over.
    """
    try:
        with opened(capsule) as whole:
            request = ReplayRequest(capsule=whole, runtime=runtime or "", allow_writes=allow_writes)
            with open_replay(request, _say) as live:
                verdict = run_to_end(live, until=until, strict=strict, timeout_s=timeout, say=_say)
                output = live.output.read_text(errors="replace") if live.output.exists() else ""
                place = live.runtime
            kept = _keep_output(capsule, output)
            incident = whole.manifest.incident.text
    except PrismError as error:
        if bisect and (isinstance(error, FacilityError) or error.exit_code in (3, 4, 124)):
            _say(f"cannot tell: {error}")
            return BISECT_SKIP
        raise
    if as_json:
        render.emit_json({**_json(verdict, output, place), "output_kept_at": str(kept) if kept else None})
    else:
        _print(verdict, output, incident)
        if kept:
            render.say(f"its whole output: {kept}")
    return _CODES[verdict.outcome]


def _keep_output(capsule: Path, output: str) -> Path | None:
    """Beside the capsule, for the session's folder goes; None where nothing was written or that place is read-only."""
    kept = capsule.parent / f"{capsule.name}.output"
    if not output:
        return None
    try:
        kept.unlink(missing_ok=True)
        # never through a link, never into a file that is there already
        descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        _say(f"the rank's output is not kept: {kept}: {error.strerror}")
        return None
    with os.fdopen(descriptor, "w") as file:
        file.write(output)
    return kept


def _say(text: str) -> None:
    render.say(f"prismdbg: {text}")


def _json(verdict: Verdict, output: str, runtime: str) -> dict[str, object]:
    return {
        "outcome": verdict.outcome,
        "summary": verdict.summary,
        "moment": verdict.moment,
        "went_on_to": verdict.went_on_to or None,
        "runtime": runtime,
        "tally": verdict.tally,
        "story": verdict.story,
        "source": verdict.source,
        "raised": verdict.raised,
        "states": verdict.states,
        "synthesized": verdict.synthesized,
        "notes": verdict.notes,
        "exit_code": verdict.exit_code,
        "elapsed_ns": verdict.elapsed_ns,
        "output": output,
    }


def _print(verdict: Verdict, output: str, incident: str) -> None:
    if output:
        render.say("the rank's own output:")
        for line in output[-OUTPUT_SHOWN_BYTES:].splitlines():
            render.say(f"  | {line}")
    tally = verdict.tally
    if verdict.story is not None:
        render.emit(render_story(verdict.story, list(source_lines(verdict.source)) if verdict.source else ()))
    else:
        render.emit(verdict.summary)
    if verdict.outcome in (Outcome.SAME, Outcome.UNHUNG):
        render.say(f"recorded as: {incident}")
    for note in verdict.notes:
        render.say(note)
    if tally.get("object_notes"):
        render.say(f"{tally['object_notes']} pickled objects differ, as a pid or a time does; --strict counts them")
    if tally.get("synthesized"):
        render.say(
            f"{tally['synthesized']} answers were synthesized: nothing was recorded there; what follows is assumed"
        )
    for state in verdict.states:
        render.say(
            f"parameters at {state['moment']}: {state['actual']} {'=' if state['equal'] else '!='} {state['expected']}"
        )
