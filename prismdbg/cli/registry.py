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
            raise TypeError(f"prismdbg.cli.commands.{self.name}.command is not a click command")
        return command


SECTIONS: dict[str, tuple[Entry, ...]] = {
    "Record and diagnose a job": (
        Entry("record", "Run a training job and record its collectives."),
        Entry("status", "Show the state of each rank of a run."),
        Entry("capture", "Capture one rank of a running job; the job continues."),
        Entry("why", "Diagnose a crash, hang, NaN or straggler from the logs."),
        Entry("report", "Write an HTML page about an incident, for a ticket."),
        Entry("export", "Write the collectives of a run for other tools."),
        Entry("telemetry", "Show the metrics of CPUs, GPUs and the machine during a job."),
    ),
    "Replay and debug one rank": (
        Entry("open", "View a capsule or a whole job without running it."),
        Entry("build", "Build the container image that a capsule runs in."),
        Entry("replay", "Replay a captured rank and compare every collective with the recording."),
        Entry("debug", "Step through a captured rank, forwards and backwards."),
        Entry("dap", "Debug a captured rank from an editor (Debug Adapter Protocol)."),
        Entry("memory", "Show peak memory and its cause."),
        Entry("diff", "Find the first difference between two runs or two ranks."),
    ),
    "Emulate and simulate a large job": (
        Entry("plan", "Estimate the ranks, time, storage and memory of an emulation."),
        Entry("emulate", "Run ranks of a large job among virtual peers."),
        Entry("sweep", "Compare configurations of a job by their time and memory."),
        Entry("graph", "Build and simulate one iteration of the whole job."),
        Entry("predict", "Predict time and memory of a training step from times of operators."),
        Entry("sample", "Time each operator of a program in isolation."),
        Entry("calibrate", "Measure collectives and write a cluster file for the simulation."),
    ),
    "Manage runs and capsules": (
        Entry("gather", "Combine the runs of a job's nodes into one, over ssh."),
        Entry("publish", "Copy logs that a killed `record` left on its node into the run."),
        Entry("list", "List runs and capsules with their sizes."),
        Entry("inspect", "Show the contents of a capsule."),
        Entry("verify", "Check that a capsule is complete, unaltered and replayable."),
        Entry("pack", "Pack a capsule into one file."),
        Entry("unpack", "Unpack a capsule without trusting its contents."),
        Entry("rm", "Remove runs and capsules, or the oldest capsules."),
    ),
    "Set up this machine": (
        Entry("doctor", "Check this machine and show a fix for each missing requirement."),
        Entry("setup", "Build the native recorder and the CRIU bundle."),
        Entry("completion", "Complete commands and options in your shell."),
    ),
}


def entries() -> dict[str, Entry]:
    return {entry.name: entry for section in SECTIONS.values() for entry in section}
