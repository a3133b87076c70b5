"""`prismdbg status`: what a run holds, while it runs and after."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click

from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.cli.terminal import long_work
from prismdbg.jobs.capture.agent_sockets import remove_dead_sockets
from prismdbg.jobs.storage.emulated_run import read_emulated
from prismdbg.jobs.storage.job_nodes import node_states
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.storage.run_report import RankState, rank_states, report
from prismdbg.model.meanwhile import one_by_one
from prismdbg.render import console


@click.command()
@click.argument("run", type=Fetched())
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@USER_CODE
@long_work.shown()
def command(run: Path, as_json: bool) -> None:
    """Show the state of each rank of RUN, while the job runs or afterwards.

    Example: `prismdbg status RUN`

    The table shows each rank's state, last moment, collectives, collectives in flight, window of kept payloads, sizes
    of log and payloads on disk, and what was lost. In a job of several nodes it also shows the node of each rank, and
    the state of each node follows.
    """
    folder = RunFolder.existing(run)
    remove_dead_sockets()
    nodes = node_states(folder)
    states = rank_states(folder, nodes, each=partial(one_by_one, what="reading the logs of ranks"))
    if as_json:
        emulated = read_emulated(folder)
        more: dict[str, Any] = {} if emulated is None else {"emulated": emulated.to_json()}
        more |= {"nodes": [node.to_json() for node in nodes]} if nodes else {}
        console.emit_json({"run": str(run), "ranks": [state.to_json() for state in states], **more})
        return
    console.emit(_table(states, has_nodes=bool(nodes)))
    for line in report(run, states, nodes):
        console.say(line)


def _table(states: Iterable[RankState], *, has_nodes: bool) -> str:
    rows = [
        (
            state.name,
            *([state.node or "?"] if has_nodes else []),
            state.state,
            str(state.moment),
            str(state.collectives),
            str(state.in_flight),
            state.window,
            console.size(state.log_bytes),
            console.size(state.payload_bytes),
            state.lost,
        )
        for state in states
    ]
    header = (
        "rank",
        *(["node"] if has_nodes else []),
        "state",
        "moment",
        "collectives",
        "in flight",
        "window",
        "log",
        "payloads",
        "lost",
    )
    right = ("collectives", "in flight", "log", "payloads")
    return console.columns(header, rows, right=right, width=console.terminal_width())
