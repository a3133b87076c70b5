"""`prismdbg record`: runs a job as it is, with every rank's collectives recorded."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.launched_job import JOB, NEW_RUN, TAKES_JOB
from prismdbg.cli.options.memory_options import MEMORY, MEMORY_CAP
from prismdbg.cli.options.param_types import period, size
from prismdbg.cli.options.param_types import ranks as rank_list
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.errors import UsageError
from prismdbg.jobs.record.dry_run import DryRun
from prismdbg.jobs.record.dry_run import dry_run as preview
from prismdbg.jobs.record.incidents import DEFAULT_TRIGGERS, parse_triggers
from prismdbg.jobs.record.record import RecordRequest, record
from prismdbg.jobs.record.supervisor import Policy
from prismdbg.render import console

DEFAULT_PERIOD = "50ms"


@click.command(context_settings=TAKES_JOB)
@NEW_RUN
@click.option("--ranks", type=rank_list, help="Record only these ranks, as in 0,2 or 0-3.  [default: all]")
@click.option(
    "--window",
    default="0",
    metavar="STEPS|all",
    help="Keep the data received in at least the last STEPS steps, or in all steps.  [default: none]",
)
@click.option(
    "--window-bytes", type=size, default="4GiB", show_default=True, help="Keep at most SIZE of received data per rank."
)
@click.option(
    "--log-bytes",
    type=size,
    default="256MiB",
    show_default=True,
    help="Limit the log of each rank to SIZE and drop the oldest collectives; 256 MiB hold about 1 million. For a "
    "checkpoint or state snapshot that is kept, up to twice SIZE. With --window all, nothing is dropped.",
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(min=0),
    default=0,
    metavar="STEPS",
    help="Take a checkpoint of each rank every STEPS steps. Automatic capsules start at a checkpoint.  "
    "[default: never]",
)
@click.option(
    "--state-every",
    type=click.IntRange(min=0),
    default=0,
    metavar="STEPS",
    help="Keep a state snapshot of each rank every STEPS steps. Capsules start there. The program must call "
    "prismdbg.restore_point, or train with a framework that prismdbg knows.  [default: never]",
)
@click.option(
    "--sketches",
    is_flag=True,
    help="Keep a 48-byte sketch (a few sums) of the floating-point data that each collective sends, so that "
    "`replay --tolerance` can compare a replay on other hardware.",
)
@click.option(
    "--trigger",
    "triggers",
    default=DEFAULT_TRIGGERS,
    show_default=True,
    metavar="EVENTS",
    help="Capture a rank on these events: exception, nan, hang, signal, oom, slow; or none. hang=T and slow=N set "
    "when a wait or a step counts, as in hang=60s,slow=3.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    metavar="N",
    help="Create at most N capsules automatically.",
)
@click.option(
    "--telemetry",
    type=period,
    is_flag=False,
    flag_value=DEFAULT_PERIOD,
    metavar="[PERIOD]",
    help=f"Sample metrics of CPUs, GPUs and the machine every PERIOD, as in 100ms. Without PERIOD: {DEFAULT_PERIOD}.  "
    "[default: off]",
)
@click.option(
    "--job-id",
    default="",
    metavar="ID",
    help="Record one job of several nodes into one RUN: give the same ID on all of them. torchrun --nnodes, "
    "accelerate launch --num_machines, deepspeed --no_ssh, srun and mpirun of Open MPI need none.",
)
@click.option(
    "--local",
    default="",
    metavar="DIR|none",
    help="Let the ranks write into DIR on their own node, and copy their logs into RUN at incidents and at the end.  "
    "[default: a folder of the node, if the job has several nodes and RUN is on a file server; not in memory with "
    "--state-every]",
)
@click.option(
    "--on-incident",
    default="",
    metavar="CMD",
    help="Run the shell command CMD at each incident, with a JSON object on its standard input. It is killed after "
    "30 s.",
)
@MEMORY
@MEMORY_CAP
@click.option(
    "--zero-memory",
    is_flag=True,
    help="Fill each new CPU allocation with zeros, so that uninitialized memory that the program sends is the same in "
    "a replay. This slows allocations down.",
)
@click.option("--python-kernels", is_flag=True, help="Record without the native extension. This is slower.")
@click.option("--dry-run", is_flag=True, help="Show what would be recorded and what it may cost; start nothing.")
@USER_CODE
@JOB
def command(
    output: Path,
    ranks: tuple[int, ...] | None,
    window: str,
    window_bytes: int,
    log_bytes: int,
    checkpoint_every: int,
    state_every: int,
    sketches: bool,
    triggers: str,
    keep: int,
    telemetry: int | None,
    job_id: str,
    local: str,
    on_incident: str,
    memory: bool,
    memory_cap: int,
    zero_memory: bool,
    python_kernels: bool,
    dry_run: bool,
    job: tuple[str, ...],
) -> int:
    """Run COMMAND and record its collectives into RUN.

    Example: `prismdbg record -o RUN -- torchrun --nproc-per-node 4 train.py`

    The script needs no change, and the exit code is that of the job. RUN contains received data only with
    --checkpoint-every, --state-every or --window. Without these options, you can still use `why` on RUN, and `capture`
    while the job runs.

    With --trigger hang=T, a wait longer than T is a hang if it is also longer than 3 times the longest recent step or
    gap between collectives. If the rank that the others wait for still computes or waits for a CPU, the wait must also
    be longer than 5 T. Until then it is reported as slow. A wait longer than 10 T is always a hang. With slow=N, a step
    is an incident if it takes N times the median of the steps before it.

    For a job of several nodes, run the same command on each node, with a RUN on a shared file system. The first node
    creates RUN and the others join it.

    With --local, only what other nodes must see is written into RUN while the job runs: which nodes there are, how far
    each rank came, incidents and capsules. Use it where RUN is on a slow file server. If a supervisor is killed, the
    logs of its node stay in DIR: `status` names the folder, and `publish` copies them.

    With --memory-cap, an allocation raises torch.OutOfMemoryError if the program itself would then hold more than SIZE.
    The memory of the communication backend does not count. On a GPU, SIZE limits what torch's allocator reserves.

    --on-incident runs CMD when an incident is seen (event is "incident"), and again if it is captured (event is
    "captured"). The JSON object also has run, kind, text, moment, ranks and capsules. The job never waits for CMD. When
    the job has ended, `record` waits for CMD; if `record` is killed, CMD is killed, too.
    """
    if checkpoint_every and state_every:
        raise UsageError("--checkpoint-every and --state-every exclude each other", hint="give one of them")
    policy = Policy(
        triggers=parse_triggers(triggers),
        checkpoint_every=checkpoint_every,
        keep=keep,
        telemetry_ns=telemetry or 0,
        log_bytes=0 if window == "all" else log_bytes,  # a replay from the program's start needs all of it
        on_incident=on_incident,
    )
    request = RecordRequest(
        output=output,
        command=job,
        ranks=ranks or (),
        window_steps=_window(window),
        window_bytes=window_bytes,
        state_every=state_every,
        sketches=sketches,
        native=not python_kernels,
        memory=memory or memory_cap > 0,
        memory_cap=memory_cap,
        zero_memory=zero_memory,
        job_id=job_id,
        local=local,
        policy=policy,
    )
    if dry_run:
        _show(preview(request))
        return ExitCode.OK
    return record(request, console.announce)


def _show(planned: DryRun) -> None:
    console.emit(console.pairs(planned.rows))
    for doubt in planned.doubts:
        console.say(f"warning: {doubt}")


def _window(text: str) -> int:
    if text == "all":
        return -1
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"--window {text!r} is not a number of steps", hint="give a number, or all")
    return int(text)
