"""`prismdbg replay`: a captured rank again, alone, every collective compared with the record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.capsule_or_run import CAPSULE_OR_RUN, RANK_OF_RUN, capsule_at
from prismdbg.cli.options.limit_options import limits
from prismdbg.cli.options.param_types import moment as moment_type
from prismdbg.cli.options.param_types import seconds
from prismdbg.cli.options.place_options import ALLOW_WRITES, RUNTIME, WITH_FILE
from prismdbg.cli.options.replay_chosen import Chosen, judged
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.cli.terminal import long_work
from prismdbg.cli.terminal.rank_output import keep_output, say_output
from prismdbg.jobs.replay.compare import Verdict, run_to_end
from prismdbg.jobs.replay.replay import open_replay
from prismdbg.jobs.replay.span import require_inside
from prismdbg.jobs.replay.verdict import AS_RECORDED, Outcome
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.render.stop_text import source_lines
from prismdbg.runtime.limits import Asked
from prismdbg.session.divergence_text import render_divergence

CODES = {
    Outcome.IDENTICAL: ExitCode.OK,
    Outcome.WITHIN: ExitCode.OK,
    Outcome.DIVERGED: ExitCode.DIVERGED,
    Outcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Outcome.RANK_LOST: ExitCode.RANK_LOST,
}


def _print_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from prismdbg.script.schema import json_schema

        console.emit_json(json_schema())
        context.exit()


@click.command()
@CAPSULE_OR_RUN
@RANK_OF_RUN
@RUNTIME
@click.option("--until", type=moment_type, metavar="MOMENT", help="Stop at MOMENT.  [default: the end moment]")
@click.option("--script", type=click.Path(path_type=Path), metavar="YAML", help="Run the checks in this file.")
@click.option(
    "-x", "lines", metavar="FILE", help="Run the debugger commands in FILE, one per line; - reads standard input."
)
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Replace captured files by your edited files in DIR.",
)
@click.option(
    "--junit", type=click.Path(path_type=Path), metavar="XML", help="Write the results of --script as JUnit XML."
)
@click.option(
    "--strict", is_flag=True, help="Treat differences in pickled objects, such as a PID or a time, as diverged."
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=None,
    metavar="R",
    help="Accept values that differ from the recorded ones by at most R, relative to them, for a replay on other "
    "hardware; needs a job recorded with --sketches.",
)
@ALLOW_WRITES
@click.option("--timeout", type=seconds, default=3600.0, show_default=True, help="Limit the time of the whole replay.")
@click.option(
    "--bisect",
    is_flag=True,
    help="Use the exit codes of `git bisect run`; needs --source, or --runtime plain --allow-writes.",
)
@limits
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.option(
    "--script-schema", is_flag=True, is_eager=True, expose_value=False, callback=_print_schema,
    help="Print the JSON Schema of scripts.",
)  # fmt: skip
@WITH_FILE
@USER_CODE
@archive_keys
def command(
    capsule: Path,
    rank: int | None,
    runtime: str | None,
    until: Moment | None,
    script: Path | None,
    lines: str | None,
    source: Path | None,
    junit: Path | None,
    strict: bool,
    tolerance: float | None,
    allow_writes: bool,
    timeout: float,
    bisect: bool,
    as_json: bool,
    with_files: tuple[str, ...],
    keys: Keys,
    limits: Asked,
) -> int:
    """Replay the rank in CAPSULE and compare every collective with the recording.

    Example: `prismdbg replay CAPSULE`, or `prismdbg replay CAPSULE --source .` with a fix

    The replay goes from the start moment to the end moment. The rank runs without the other ranks and, except with
    --runtime plain, without a network and Linux capabilities. For a RUN, prismdbg uses the newest capsule of the rank,
    or creates one from the recorded data.

    \b
    Exit codes:
      0    The replay is identical to the recorded run, or within --tolerance.
      1    A check of --script, or a command of -x, failed.
      2    The command line is wrong.
      3    The capsule is damaged or cannot be replayed.
      4    This machine lacks a requirement (see `prismdbg doctor`), or the
           replay reached a limit (--limit-...).
      5    The replay diverged.
      6    The process died where the recorded process did not.
      7    The replay is inconclusive: for example, too little could be
           compared, or the incident did not happen again.
      124  The replay took longer than --timeout.
      125  With --bisect: git skips the commit.
      128  With --bisect: the command line is wrong.
      130  The command was interrupted.
      141  The output pipe was closed before the verdict (SIGPIPE).
      143  The command was terminated.

    With --tolerance, a value that a collective sends may differ from the recorded one if its sketch is close
    to the recorded one. The difference is an estimate: the norm of the difference, divided by the norm of the recorded
    value. Integers must be the same. Where there is no sketch of a value that differs, the replay is inconclusive.

    With --source, the program may differ from the recording. Then 0 means that the incident does not happen again, 1
    that it happens again or that the program fails in another way, and 7 that neither is certain. With --script, the
    checks must hold, too. The same applies to --runtime plain with --bisect, which runs the files of this machine.

    With --bisect, 125 tells git to skip the commit, because the program fails in another way or
    the replay is inconclusive, and 128 ends the bisection, because the command line is wrong.
    """
    chosen = Chosen(
        capsule=capsule,
        runtime=runtime or "",
        until=until,
        script=script,
        lines=lines,
        source=source,
        junit=junit,
        strict=strict,
        tolerance=tolerance or 0.0,
        allow_writes=allow_writes,
        bound_s=timeout,
        bisect=bisect,
        as_json=as_json,
        with_files=with_files,
        keys=keys,
        limits=limits,
    )
    chosen.check()
    with long_work.shown():
        return judged(lambda: _replayed(chosen, rank)) if bisect else _replayed(chosen, rank)


def _replayed(chosen: Chosen, rank: int | None) -> int:
    chosen = replace(chosen, capsule=capsule_at(chosen.capsule, rank))
    if chosen.is_scripted:  # with the whole debugger, whose import takes longer than that of all others here
        from prismdbg.cli.terminal.replay_script import replay_scripted

        return replay_scripted(chosen)
    return _compare(chosen) if chosen.lines is None else _by_lines(chosen, chosen.lines)


def _by_lines(chosen: Chosen, name: str) -> int:
    from prismdbg.cli.terminal.replay_lines import read_lines, replay_lines

    lines = read_lines(name)
    with opened(chosen.capsule, chosen.keys) as whole:
        return replay_lines(chosen.request(whole), lines, bound_s=chosen.bound_s, say=console.announce)


def _compare(chosen: Chosen) -> int:
    capsule = chosen.capsule
    with opened(capsule, chosen.keys) as whole:
        require_inside(whole.manifest, whole.path.name, "--until", chosen.until)
        request = chosen.request(whole)
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            console.announce(text)

        with open_replay(request, say) as live:
            verdict = run_to_end(
                live,
                until=chosen.until,
                strict=chosen.strict,
                tolerance=chosen.tolerance,
                deadline=request.deadline,
            )
            output = live.output.text()
            place = live.runtime
        kept = keep_output(capsule, output)
        incident = whole.manifest.incident.text
    with console.also_unread():
        if chosen.as_json:
            console.emit_json({**_json(verdict, output, place), "output_kept_at": str(kept) if kept else None})
        else:
            _print(verdict, output, incident, said)
            if kept:
                console.say(f"complete output: {kept}")
    return CODES[verdict.outcome]


def _json(verdict: Verdict, output: str, runtime: str) -> dict[str, object]:
    return {
        "outcome": verdict.outcome,
        "why": verdict.why or None,
        "strength": {**asdict(verdict.strength), "thin": verdict.strength.is_thin},
        "summary": verdict.summary,
        "moment": verdict.moment,
        "tolerance": verdict.tolerance or None,
        "went_on_to": verdict.went_on_to or None,
        "runtime": runtime,
        "tally": verdict.tally,
        "story": verdict.story,
        "source": verdict.source,
        "raised": verdict.raised,
        "states": verdict.states.messages,
        "synthesized": verdict.synthesized.messages,
        "left_out": {"states": verdict.states.left_out, "synthesized": verdict.synthesized.left_out},
        "notes": verdict.notes,
        "exit_code": verdict.exit_code,
        "elapsed_ns": verdict.elapsed_ns,
        "output": output,
    }


def _print(verdict: Verdict, output: str, incident: str, said: Collection[str] = ()) -> None:
    """`said`: at the start; notes that say the same are not repeated."""
    say_output(output)
    if verdict.story is not None:
        console.emit(render_divergence(verdict.story, list(source_lines(verdict.source)) if verdict.source else ()))
    else:
        console.emit_lines([verdict.summary])
    if verdict.outcome in (*AS_RECORDED, Outcome.INCONCLUSIVE):
        console.say(f"recorded as: {incident}")
    notes = (note for note in verdict.notes if note not in said)
    for line in (*notes, *_of_tally(verdict.tally)):
        console.say(line)
    for state in verdict.states:
        sign = "=" if state["equal"] else "!="
        console.say(f"parameters at {state['moment']}: {state['actual']} {sign} {state['expected']}")
    if verdict.states.left_out:
        console.say(f"parameters: {counted(verdict.states.left_out, 'further comparison')} not shown")


def _of_tally(tally: Mapping[str, Any]) -> Iterator[str]:
    """What limits the verdict: a sentence each."""
    if tally.get("again"):
        yield "emulated: the peers' answers are synthesized, as in the emulation; values are valid for this run only"
    if differ := tally.get("object_notes"):
        objects = f"{counted(differ, 'pickled object')} {'differs' if differ == 1 else 'differ'}"
        yield f"{objects}, for example in a PID or a time; --strict treats that as diverged"
    if made := tally.get("synthesized"):
        yield f"synthesized, because not recorded: {counted(made, 'answer')}; later values depend on them"
