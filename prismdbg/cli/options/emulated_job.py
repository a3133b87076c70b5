"""What `prismdbg emulate` and `prismdbg plan` are asked alike: the whole job, and which of its ranks run here."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from prismdbg.cli.options.param_types import ranks as rank_list
from prismdbg.emulate.request import USUAL_STEPS, EmulateRequest
from prismdbg.errors import UsageError
from prismdbg.jobs.record.launch_line import parse
from prismdbg.settings.emulation import Rule
from prismdbg.simulate.graph.class_finder import DEFAULT_CHECKS
from prismdbg.simulate.graph.mesh import LARGEST_WORLD, Mesh

Command = Callable[..., Any]
_TAKEN = (
    "world",
    "mesh",
    "ranks",
    "classes",
    "checks",
    "steps",
    "rules",
    "ranks_per_node",
    "verbose",
    "timeout",
    "job",
)


def emulated_job(*, ranks_help: str, steps_help: str, peers_help: str) -> Callable[[Command], Command]:
    """Adds the options that describe the job. With the command's own timeout and job they arrive as `whole`, a request
    without an output folder."""

    def add(command: Command) -> Command:
        @wraps(command)
        def called(**given: Any) -> Any:
            whole = _whole(**{name: given.pop(name) for name in _TAKEN})
            return command(whole=whole, **given)

        added: Command = called
        for option in reversed(_options(ranks_help, steps_help, peers_help)):
            added = option(added)
        return added

    return add


def _options(ranks_help: str, steps_help: str, peers_help: str) -> tuple[Callable[[Command], Command], ...]:
    return (
        click.option(
            "--world",
            type=click.IntRange(1, LARGEST_WORLD),
            metavar="N",
            help="Set the number of ranks of the whole job.  [default: from torchrun, else from --mesh]",
        ),
        click.option(
            "--mesh",
            required=True,
            metavar="AXES",
            help="Set the mesh axes and sizes, as in pp=16,dp=64,tp=8. Ranks along the last axis are adjacent.",
        ),
        click.option("--ranks", type=rank_list, help=ranks_help),
        click.option(
            "--classes",
            is_flag=False,
            flag_value="",
            metavar="[AXES]",
            help="Group ranks that do the same work into classes, and run one rank of each. AXES are the mesh axes "
            "along which ranks differ, if you know them.",
        ),
        click.option(
            "--checks",
            type=click.IntRange(min=0),
            default=DEFAULT_CHECKS,
            show_default=True,
            metavar="N",
            help="With --classes, run at most N more ranks to verify the classes.",
        ),
        click.option("--steps", type=click.IntRange(min=0), default=0, metavar="N", help=steps_help),
        click.option("--peers", "rules", multiple=True, metavar="RULE", help=peers_help),
        click.option(
            "--ranks-per-node",
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help="Put N ranks on a node.  [default: from torchrun, else at most 8]",
        ),
        click.option(
            "--verbose",
            "-v",
            is_flag=True,
            help="Show what the ranks print. Otherwise, only the last lines of a rank that fails are shown.",
        ),
    )


def _whole(
    *,
    world: int | None,
    mesh: str,
    ranks: tuple[int, ...] | None,
    classes: str | None,
    checks: int,
    steps: int,
    rules: tuple[str, ...],
    ranks_per_node: int,
    verbose: bool,
    timeout: float,
    job: tuple[str, ...],
) -> EmulateRequest:
    axes = Mesh.parse(mesh)
    return EmulateRequest(
        output=Path("not-made"),
        command=job,
        world=world or parse(job).world or axes.world,
        mesh=axes,
        ranks=ranks or (0,),
        classes=_class_axes(classes, ranks),
        checks=checks,
        steps=steps or (USUAL_STEPS if classes is not None else 0),
        rules=tuple(Rule.parse(rule) for rule in rules),
        per_node=ranks_per_node,
        verbose=verbose,
        bound_s=timeout,
    )


def _class_axes(text: str | None, ranks: tuple[int, ...] | None) -> tuple[str, ...] | None:
    """None where ranks are run by number."""
    if text is None:
        return None
    if ranks is not None:
        raise UsageError("--ranks and --classes cannot be combined", hint="give one of them")
    return tuple(name.strip() for name in text.split(",") if name.strip())
