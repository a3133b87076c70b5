"""The whole things that inputs are made from: capsules of both origins, a run, a graph, a cluster file, a script."""

# ruff: noqa: E402  the makers of logs and traces are found only once their folder is on the path

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

from capsules import IMAGE, MANIFEST
from tiny_log import FLOATS, TinyLog
from traces import TraceBuilder

import prismdbg
from prismdbg.capsule import files, layout
from prismdbg.capsule import log_format as fmt
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.capsule.manifest import Incident, IncidentKind, Manifest, Origin
from prismdbg.checkpoint import bundle
from prismdbg.errors import FacilityError
from prismdbg.jobs.capture import rank_half
from prismdbg.model.collective import Frame, TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.runtime.environment import InstalledFile, of_files
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh
from tests.fuzz.process_image import write_images

ROOT = Path(__file__).parents[2]
CAPSULES = ("start", "image")
_FRAMES = (("/work/train.py", 12, "main"), ("/usr/lib/python3.11/runpy.py", 88, "run"))
_TIMED = 1_000_000


def make_corpus(folder: Path) -> Mapping[str, Path]:
    """By name, each a folder or a file in a folder of its own."""
    made = {"start": _capsule(folder / "start", MANIFEST)}
    try:
        bundle.find()
    except FacilityError:
        pass  # without CRIU its images cannot be read at all
    else:
        made["image"] = _capsule(folder / "image", IMAGE)
    made["run"] = _run(folder / "run")
    made["emulated"] = _emulated(folder / "emulated")
    made |= {"graph": folder / "graph.npz", "cluster": folder / "cluster.yaml", "script": folder / "checks.yaml"}
    shape = GptShape(layers=2, hidden=8, sequence=4, microbatches=2)
    graph_file.save(gpt_job(Mesh.parse("pp=2,dp=2,tp=2"), shape), made["graph"])
    shutil.copyfile(ROOT / "examples" / "emulation" / "cluster.yaml", made["cluster"])
    shutil.copyfile(ROOT / "examples" / "ci" / "checks.yaml", made["script"])
    return made


def rank_json(cwd: Path, rank: int = 0) -> dict[str, Any]:
    return {
        "rank": rank, "world_size": 2, "pid": 4711, "pid_namespace": 4026531836, "started_ticks": 5,
        "started_ns": 10**18, "seeds": {"torch": 7, "random": [*range(624), 624], "numpy.random": [0] * 625},
        "executable": "/usr/bin/python3", "prefix": "/usr", "base_prefix": "/usr",
        "orig_argv": ["python3", "train.py", "--steps", "3"], "argv": ["train.py", "--steps", "3"],
        "cwd": str(cwd), "sys_path": ["", "/usr/lib/python3.11"], "environment": {"LANG": "C", "RANK": str(rank)},
        "redacted": ["API_KEY"], "redacted_arguments": ["--token"], "socket": "/run/prismdbg/0.sock",
        "inject": "/work/RUN/inject", "recorder": "python", "torch_threads": 1, "cpu_capability": "AVX2",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "prismdbg": "0.1.0"},
        "hardware": {"machine": "x86_64", "cpus": 2, "node": "n1", "kernel": "6.1"}, "uid": 0,
        "past_records": 0, "in_flight": [], "folders": ["/work/out"], "absent": ["/work/new"],
    }  # fmt: skip


def write_log(folder: Path, rank: int = 0) -> Path:
    """Every kind of record: collectives, point-to-point, a failure, waits, steps, notes, two segments."""
    log = TinyLog(folder, rank, segment_bytes=1 << 14)
    log.group("0", (0, 1), "default_pg")
    log.note("begin", recorder="python")
    for name in ("/work/train.py", "/work/data.bin"):
        log.note("file", path=name, moment="0.0")
    log.note("folder", path="/work/out", moment="0.0")
    log.note("made", path="/work/new", moment="0.1")
    stack = log.stack(*_FRAMES)
    for step in range(3):
        record = log.issue(step, 1, stack=stack)
        log.complete(record, bytes(16))
        log.append(fmt.Kind.WAIT, fmt.WAIT.pack(record, _TIMED + step, 77))
        shapes = (TensorMeta((2, 3), "bfloat16"), FLOATS)
        gathered = log.issue(step, 2, op="allgather_", stack=stack, inputs=(FLOATS,), outputs=shapes)
        log.complete(gathered, bytes(28))
        sent = log.issue(step, 3, op="send", root=1 - rank, flags=fmt.IssueFlag.P2P | 8, outputs=(), stack=stack)
        log.complete(sent)
        log.note("state", hash=f"{step:016x}", step=step)
        log.step(step + 1)
        if step == 1:
            log.next_segment()
    failed = log.issue(3, 1, stack=stack)
    log.note("failed", record_id=failed, type="RuntimeError", text="peer gone", at_issue=False)
    log.complete(failed, status=fmt.Status.FAILED)
    log.issue(3, 2, device="cuda:0 stream 3", stack=stack)
    trace = ["Traceback (most recent call last):\n", '  File "/work/train.py", line 12, in main\n', "ValueError: no\n"]
    log.note("incident", incident="exception", type="ValueError", text="no", traceback=trace, moment="3.2")
    log.note("exit", code=1, moment="3.2")
    return folder


def _manifest(manifest: Manifest) -> Manifest:
    incident = Incident(kind=IncidentKind.EXCEPTION, text="ValueError: no", moment=Moment(3, 2))
    return replace(manifest, moment_b=Moment(2, 3), incident=incident)


def _trace(folder: Path) -> Path:
    trace = TraceBuilder(folder, capacity=16, from_start=True, in_use_bytes=4096)
    frames = tuple(Frame(*frame) for frame in _FRAMES)
    for step in range(3):
        trace.answered(Moment(step, 1), 10)
        block = trace.allocate(1 << 12, "aten::empty", module="model.0", frames=frames)
        trace.operator("aten::mm", frames=frames)
        trace.allocate(256, "aten::add", backend=step == 1)
        trace.waited(step, 20)
        trace.free(block)
    trace.refuse(1 << 20, "aten::empty", frames)
    return trace.write()


def _capsule(path: Path, manifest: Manifest) -> Path:
    scratch = path.with_suffix(".parts")
    work = scratch / "work"
    work.mkdir(parents=True)
    (work / "train.py").write_text("print('hello')\n")
    (work / "data.bin").write_bytes(bytes(range(256)))
    log = write_log(scratch / "log")
    with CapsuleWriter(path) as writer:
        writer.add_tree(layout.LOG, log)
        writer.add_json(layout.RANK, rank_json(work))
        files.add_files(writer, [str(work / name) for name in ("train.py", "data.bin", "gone.txt")], small_bytes=100)
        installed = [InstalledFile("/usr/bin/python3", 0o755, 5, 6), InstalledFile("/usr/lib/l.so", 0o777, target="m")]
        writer.add_json(layout.ENVIRONMENT, of_files(installed, extra=["/usr/lib/l.so"]).to_json())
        writer.add_tree(layout.MEMORY, _trace(scratch / "memory"))
        writer.add_bytes(layout.RANK_HALF, rank_half.pack(_small_package(scratch / "prismdbg")))
        if manifest.origin is Origin.IMAGE:
            writer.add_checkpoint(write_images(scratch / "images", work))
        writer.finish(_manifest(manifest))
    return path


def _small_package(folder: Path) -> Path:
    (folder / "rank").mkdir(parents=True)
    shutil.copyfile(Path(prismdbg.__file__), folder / "__init__.py")
    (folder / "rank" / "boot.py").write_text("pass\n")
    return folder


def _run(path: Path) -> Path:
    for rank in range(2):
        folder = write_log(path / "ranks" / str(rank), rank)
        (folder / "rank.json").write_text(json.dumps(rank_json(path, rank)))
        _trace(folder / "memory")
    incident = {"kind": "lost", "text": "rank 1 died", "ranks": [1], "attempt": 0, "moment": "3.2", "capsule": None}
    supervisor = {"incidents": [incident], "capsules": ["/work/c"], "problems": ["p"], "deaths": ["1", "0"]}
    _json(path / "supervisor.json", {**supervisor, "exit_code": 1, "ended_wall_ns": 10**18})
    _json(path / "config.json", {"mode": "record", "nan_check": True, "ranks": [], "window": "all"})
    _json(path / "run.json", {"command": ["python", "train.py"], "cwd": "/work", "started_wall_ns": 10**18,
                              "supervisor_pid": 4711, "version": "0.1.0", "python": "3.11.7"})  # fmt: skip
    _json(path / "environment.json", of_files([InstalledFile("/usr/bin/python3", 0o755, 5, 6)]).to_json())
    return path


def _emulated(path: Path) -> Path:
    """As `emulate --classes` leaves it, with how far its passes were apart."""
    _run(path)
    run = json.loads((path / "run.json").read_text())
    emulated = {"world": 2, "mesh": {"dp": 2}, "steps": 3, "peers": ["echo"], "seed": 0}
    _json(path / "run.json", {**run, "emulated": emulated})
    each = {"name": "as rank 0", "representative": 0, "bases": [0], "ranks": 2, "checked_with": [1], "assumed": False}
    classes = {"begins": {"dp": [0]}, "alike": ["dp"], "probed": ["dp"], "ran": [0, 1], "classes": [each]}
    _json(path / "classes.json", {"format": 1, **classes})
    return path


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))
