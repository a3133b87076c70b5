"""What a job of many ranks on many nodes costs whoever reads its RUN."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.capsule.log import format as fmt
from prismdbg.jobs.storage.job_nodes import NodeFolder, job_file
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.jobs.storage.run_report import log_bytes
from prismdbg.log.joining import APART, JOINED_BYTES
from tests.bench.long_run import PER_STEP, STEPS_PER_SEGMENT, LongRun
from tests.bench.sections.weeks import LOG_BYTES as KEPT_BYTES
from tests.bench.sections.weeks import used
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Jobs of many nodes: reading a RUN of 1,024 ranks"
PER_NODE = 8
LOG_BYTES = 8 << 20
COMMANDS = {"status": 2.0, "why": 30.0}  # goals in seconds of processor time
MEMORY_GOAL_MIB = 2000.0
FILES_GOAL = 8.0  # for each rank


def measure(settings: Settings, folder: Path) -> Measured:
    run = many_ranks(folder / "run", settings.many_ranks)
    what = f"{settings.many_ranks:,} ranks on {settings.many_ranks // PER_NODE} nodes"
    rows = []
    for command, goal in COMMANDS.items():
        spent = [used([command, str(run.path)]) for _ in range(2)]
        rows += [
            Row(what=f"`{command}`, {what}", values=[seconds for seconds, _ in spent], unit="s", goal=goal, digits=2),
            Row(
                what=f"`{command}`, {what}: memory",
                values=[mib for _, mib in spent],
                unit="MiB",
                goal=MEMORY_GOAL_MIB,
                digits=0,
            ),
        ]
    files = sum(len(names) for _, _, names in os.walk(run.path))
    rows.append(
        Row(
            what=f"files in RUN for each rank, {what}",
            values=[files / settings.many_ranks],
            unit="",
            goal=FILES_GOAL,
            digits=1,
        )
    )
    return Measured(
        rows=rows,
        notes=[
            f"Seconds of processor time. Logs are generated: {collectives():,} collectives of each rank, of which "
            f"{LOG_BYTES >> 20} MiB are kept and a summary of the rest. The last rank never came to the last one.",
            f"Logs of the default size would take {settings.many_ranks * KEPT_BYTES >> 30} GiB. Each has "
            f"{KEPT_BYTES // fmt.EVENT_SEGMENT_BYTES} files instead of {LOG_BYTES // fmt.EVENT_SEGMENT_BYTES}, and "
            f"about {1 + KEPT_BYTES // JOINED_BYTES + APART} after it was copied from a node's folder (`--local`).",
        ],
    )


def collectives() -> int:
    return (STEPS_PER_SEGMENT + STEPS_PER_SEGMENT // 2) * PER_STEP


def many_ranks(path: Path, ranks: int) -> RunFolder:
    """A RUN that supervisors of nodes with `PER_NODE` ranks each have left."""
    generated = LongRun(path, ranks, LOG_BYTES)
    generated.write(collectives() // PER_STEP)
    run = generated.run
    report = read_json(run.supervisor_json)
    run.supervisor_json.unlink()
    run.nodes.mkdir()
    write_json(job_file(run.nodes), {"id": "generated", "supervisors": ranks // PER_NODE})
    for number in range(ranks // PER_NODE):
        node = NodeFolder(run.nodes / f"n{number}")
        node.path.mkdir()
        write_json(node.about, {"restart": 0, "host": node.name})
        write_json(node.supervisor_json, report)
        write_json(node.beat, {"beat": 1, "progress": _progress(run, number)})
        for rank in range(number * PER_NODE, (number + 1) * PER_NODE):
            about = run.ranks / str(rank) / "rank.json"
            elsewhere = {"node": node.name, "hardware": {"node": node.name}}
            write_json(about, {**read_json(about), **elsewhere})
    return run


def _progress(run: RunFolder, node: int) -> dict[str, dict[str, object]]:
    """As the node's supervisor would have told it."""
    moment, told = f"{collectives() // PER_STEP - 1}.{PER_STEP}", {}
    for rank in range(node * PER_NODE, (node + 1) * PER_NODE):
        told[str(rank)] = {
            "moment": moment,
            "collectives": collectives(),
            "in_flight": 0,
            "lost": "",
            "word": "",
            "log_bytes": log_bytes(run.ranks / str(rank)),
            "payload_bytes": 0,
        }
    return told
