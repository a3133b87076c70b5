"""Small whole capsules for tests, made by the product's own writer."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiny_log import TinyLog, write_training

from prismdbg.capsule import layout, safetensors
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.manifest import OLDEST_WITH_STATE, Incident, IncidentKind, Manifest, Origin
from prismdbg.capsule.state_snapshot import DESCRIPTION, PROLOGUE, TENSORS, StateSnapshot
from prismdbg.checkpoint.gpu_part import PART
from prismdbg.model.collective import Group
from prismdbg.model.moment import Moment

STARTED = {"executable": "/usr/bin/python3", "torch_threads": 1, "cpu_capability": "AVX2"}  # what a replay starts with
RANK = {
    **STARTED,
    "argv": ["train.py", "--steps", "3"],
    "orig_argv": ["python", "train.py", "--steps", "3"],
    "cwd": "/work",
    "environment": {"LANG": "C"},
    "redacted": ["API_KEY"],
    "rank": 0,
    "world_size": 2,
    "socket": "/run/prismdbg/rank.sock",
    "inject": "/opt/prismdbg",
}
MANIFEST = Manifest(
    created_ns=1_700_000_000_123_456_789,
    job="gpt",
    rank=0,
    world_size=2,
    moment_a=Moment(0, 1),
    moment_b=Moment(2, 2),
    incident=Incident(kind=IncidentKind.NAN, text="all_reduce in world", moment=Moment(2, 2)),
    origin=Origin.START,
    contains_raw_memory=False,
    replayable_from=Moment(0, 1),
    groups=(Group(name="0", ranks=(0, 1), desc="default_pg", backend="gloo"),),
    versions={"torch": "2.13.0"},
    hardware={"machine": "x86_64"},
    notes=("made by a test",),
)
STATE = replace(MANIFEST, origin=Origin.STATE, oldest_reader=OLDEST_WITH_STATE)
IMAGE = replace(MANIFEST, origin=Origin.IMAGE, contains_raw_memory=True)


def make_capsule(
    path: Path,
    manifest: Manifest = MANIFEST,
    *,
    steps: int = 3,
    device: str = "cpu",
    gpu: str = "",
    spawned: bytes = b"",
    **parts: Any,
) -> Capsule:
    """`steps` in the log, `device` of its tensors; gpu: what its checkpoint says of the state of GPUs; spawned:
    what multiprocessing gave the rank; `parts`: further files, by what stands behind `prismdbg/` up to the dot."""
    with tempfile.TemporaryDirectory() as folder, CapsuleWriter(path) as writer:
        write_training(Path(folder) / "log", steps, rank=manifest.rank, device=device)
        writer.add_tree(layout.LOG, Path(folder) / "log")
        writer.add_json(layout.RANK, {**RANK, "past_records": 0} if manifest.origin is Origin.STATE else RANK)
        for name, value in parts.items():
            writer.add_json(f"{layout.OURS}/{name}.json", value)
        if spawned:
            writer.add_bytes(layout.SPAWNED, spawned)
        if manifest.origin is Origin.IMAGE:
            images = Path(folder) / "images"
            images.mkdir()
            (images / "pages-1.img").write_bytes(b"memory" * 1000)
            (images / "stats-dump").write_bytes(b"statistics")
            if gpu:
                (images / PART).write_text(gpu)
            writer.add_checkpoint(images)
        if manifest.origin is Origin.STATE:
            add_state(writer, Path(folder), manifest.rank)
        return writer.finish(manifest)


def add_state(writer: CapsuleWriter, folder: Path, rank: int) -> None:
    """One tensor, before the first collective; the prologue is a log of one step."""
    write_training(folder / PROLOGUE, 1, rank=rank)
    writer.add_tree(f"{layout.STATE}/{PROLOGUE}", folder / PROLOGUE)
    snapshot = StateSnapshot(
        moment=Moment(0),
        past_records=0,
        prologue_records=0,
        by_hand=False,
        sequences=(),
        objects={"model": ["dict", [["weight", ["tensor", "model.weight", "cpu"]]]]},
        random=None,
        random_at_forward=None,
        buckets=(),
    )
    writer.add_bytes(f"{layout.STATE}/{DESCRIPTION}", snapshot.to_bytes())
    header = safetensors.header_of(safetensors.lay([("model.weight", "F32", (2,))]))
    writer.add_bytes(f"{layout.STATE}/{TENSORS}", header + bytes(8))


def capsule_with_nan(
    folder: Path, bad: tuple[int, ...], kind: IncidentKind = IncidentKind.NAN, moment_a: Moment = MANIFEST.moment_a
) -> Capsule:
    """Of a rank that sent NaN in the `bad` ones of four steps; the incident is in the last of them."""
    log = TinyLog(folder / "log")
    log.group("0", (0, 1))
    for step in range(4):
        log.step(step)
        log.complete(log.issue(step, 1, flags=fmt.IssueFlag.SENT_NONFINITE if step in bad else 0))
    incident = Incident(kind=kind, text="", moment=Moment(3, 1))
    with CapsuleWriter(folder / "capsule") as writer:
        writer.add_tree(layout.LOG, folder / "log")
        writer.add_json(layout.RANK, RANK)
        manifest = replace(MANIFEST, moment_a=moment_a, replayable_from=moment_a, moment_b=Moment(3, 1))
        return writer.finish(replace(manifest, incident=incident))
