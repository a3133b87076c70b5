"""Options of `prismdbg emulate` that let peers come when they would."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from prismdbg.cli.options.param_types import share
from prismdbg.emulate.pacing import PaceRequest
from prismdbg.emulate.request import EmulateRequest
from prismdbg.errors import UsageError
from prismdbg.jobs.storage.pass_errors import FILE_NAME as PASSES
from prismdbg.jobs.storage.pass_errors import Passed
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.settings.emulation import ClockKind
from prismdbg.simulate.cluster import cluster_file

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--pace",
        "clock",
        type=click.Choice([kind.value for kind in ClockKind]),
        help="Delay the answers of peers by their times in the simulated job, on the wall clock or a virtual one. "
        "Ranks run again until they agree with the simulation.  [default: no delay]",
    ),
    click.option(
        "--cluster",
        type=click.Path(path_type=Path),
        metavar="YAML",
        help="Simulate this cluster; --pace requires it.",
    ),
    click.option(
        "--until",
        type=share,
        default="1%",
        show_default=True,
        help="With --pace, stop when emulation and simulation differ by at most SHARE.",
    ),
    click.option(
        "--passes",
        type=click.IntRange(1),
        default=4,
        show_default=True,
        metavar="N",
        help="With --pace, run the ranks again at most N times.",
    ),
    click.option(
        "--alike",
        metavar="AXES",
        help="With --pace, assume that ranks do the same work if they differ only along AXES.",
    ),
)


def pace_options(command: F) -> F:
    """Adds them; they arrive as `clock`, `cluster`, `until`, `passes` and `alike`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def pace_request(
    request: EmulateRequest, clock: str | None, cluster: Path | None, until: float, passes: int, alike: str | None
) -> PaceRequest | None:
    """None where peers are there at once."""
    if clock is None:
        if cluster is not None or alike is not None:
            raise UsageError("--cluster and --alike need --pace", hint="add --pace wall or --pace virtual")
        return None
    if cluster is None:
        raise UsageError(
            "--pace needs --cluster",
            hint="add --cluster cluster.yaml; `prismdbg calibrate -o cluster.yaml` measures the figures",
        )
    return PaceRequest(
        emulate=request,
        cluster=cluster_file.read(cluster),
        clock=ClockKind(clock),
        until=until,
        passes=passes,
        alike=tuple(name.strip() for name in (alike or "").split(",") if name.strip()),
    )


def end_unconverged(passed: Passed, run: Path) -> NoReturn:
    """Says what is left of the difference; everything is kept."""
    passes = counted(passed.passes, "pass", "passes")
    console.say(
        f"prismdbg: not converged after {passes}: {passed.left}; {run / PASSES} has the difference after each pass",
        "  try: use more --steps, more --passes, or a machine that is less busy",
    )
    sys.exit(1)
