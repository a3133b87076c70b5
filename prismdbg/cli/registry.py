"""The subcommands there are, without importing any: `prismdbg --help` must not wait for docker or rich.

A subcommand is a file in `commands` with the same name, holding a click command named `command`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import click


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    summary: str

    def load(self) -> click.Command:
        command = import_module(f"prismdbg.cli.commands.{self.name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"prismdbg.cli.commands.{self.name}.command is no click command")
        return command


SECTIONS: dict[str, tuple[Entry, ...]] = {
    "In production": (
        Entry("record", "Run a training job and record its collectives."),
        Entry("status", "Say where each rank of a running job is."),
        Entry("capture", "Take one rank of a running job into a capsule; the job goes on."),
        Entry("why", "Say from the logs alone what went wrong, and which rank did it first."),
    ),
    "On one machine, alone": (
        Entry("open", "Look at what a capsule recorded; nothing runs."),
        Entry("build", "Make the container image that a capsule runs in."),
        Entry("replay", "Run a captured rank again with recorded peers and compare every collective."),
        Entry("debug", "Step through a captured rank."),
        Entry("memory", "Say when a rank had most memory live, and what made it so."),
    ),
    "A large job from few ranks": (
        Entry("plan", "Say what an emulation will take: ranks, time, storage, memory."),
        Entry("emulate", "Run any rank of a large job alone, among synthesized peers."),
        Entry("graph", "Simulate the whole job: how long, who waits for whom, what if."),
        Entry("calibrate", "Measure collectives here and write a cluster file for the simulation."),
    ),
    "Capsules": (
        Entry("list", "List runs and capsules, with their sizes."),
        Entry("inspect", "Say what a capsule holds."),
        Entry("verify", "Check that a capsule is whole, unaltered and replayable."),
        Entry("pack", "Make one file of a capsule."),
        Entry("unpack", "Make a capsule of a packed file; nothing in it is trusted."),
        Entry("rm", "Remove runs and capsules, or the oldest of them."),
    ),
    "This machine": (
        Entry("doctor", "Say what this machine can do, what it lacks, and the fix."),
        Entry("setup", "Build the native recorder and the CRIU bundle, once."),
    ),
}


def entries() -> dict[str, Entry]:
    return {entry.name: entry for section in SECTIONS.values() for entry in section}
