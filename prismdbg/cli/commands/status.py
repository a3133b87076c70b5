"""`prismdbg status`: what a run holds, while it runs and after."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from prismdbg.jobs.capture.agent_sockets import remove_dead_sockets
from prismdbg.jobs.storage.emulated_run import read_emulated
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.storage.run_report import RankState, rank_states, report
from prismdbg.render import console


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(run: Path, as_json: bool) -> None:
    """Show the state of each rank of RUN, while the job runs or afterwards.

    The table has the rank's last moment, its collectives, the window of kept payloads, and their size on disk.
    """
    folder = RunFolder.existing(run)
    remove_dead_sockets()
    states = rank_states(folder)
    if as_json:
        emulated = read_emulated(folder)
        more = {} if emulated is None else {"emulated": emulated.to_json()}
        console.emit_json({"run": str(run), "ranks": [state.to_json() for state in states], **more})
        return
    console.emit(_table(states))
    for line in report(run, states):
        console.say(line)


def _table(states: Iterable[RankState]) -> str:
    rows = [
        (
            state.name,
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
    header = ("rank", "state", "moment", "collectives", "in flight", "window", "log", "payloads", "lost")
    return console.columns(header, rows, right=("collectives", "in flight", "log", "payloads"))
