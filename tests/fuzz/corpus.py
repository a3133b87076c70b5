"""The whole things that inputs are made from: capsules of each origin, a run, a graph, a cluster file, a script, other
tools' files."""

# ruff: noqa: E402  the makers of logs and traces are found only once their folder is on the path

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

from capsules import IMAGE, MANIFEST, STATE, add_state
from tiny_log import FLOATS, TinyLog
from traces import TraceBuilder

import prismdbg
from prismdbg.capsule import files, layout
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.manifest import Incident, IncidentKind, Manifest, Origin
from prismdbg.checkpoint import bundle
from prismdbg.errors import FacilityError
from prismdbg.jobs.capture import rank_package
from prismdbg.log.joining import join
from prismdbg.memory.snapshot import write_snapshot
from prismdbg.memory.trace import open_trace
from prismdbg.model.collective import Frame, TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.runtime.environment import InstalledFile, of_files
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.stored import keep_comparison
from prismdbg.telemetry.sensor import Kind, Sensor
from prismdbg.telemetry.writer import TelemetryWriter
from tests.fuzz.process_image import write_images
from tests.fuzz.traced import write_dumps, write_executions, write_nodes, write_profiles
from tests.fuzz.traps import Traps, make_traps

ROOT = Path(__file__).parents[2]
NODE = "n1"  # where the ranks run: this machine, for the commands
CAPSULES = ("start", "image", "state")
_FRAMES = (("/work/train.py", 12, "main"), ("/usr/lib/python3.11/runpy.py", 88, "run"))
_TIMED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """`bases`: by name, each a folder or a file. edited: a folder with the program of the capsules, edited; criu: the
    bundle that reads checkpoints, None where there is none, and then no capsule with one."""

    bases: Mapping[str, Path]
    traps: Traps
    edited: Path
    criu: Path | None


def make_corpus(folder: Path) -> Corpus:
    traps = make_traps(folder / "traps")
    made, criu = {"start": _capsule(folder / "start", MANIFEST, traps)}, None
    made["state"] = _capsule(folder / "state", STATE, traps)
    try:
        criu = bundle.find().folder
    except FacilityError:
        pass  # without CRIU its images cannot be read at all
    else:
        made["image"] = _capsule(folder / "image", IMAGE, traps)
    made["run"] = _run(folder / "run")
    made["emulated"] = _emulated(folder / "emulated")
    made |= {"profiles": write_profiles(folder / "profiles"), "executions": write_executions(folder / "executions")}
    made["nodes"] = write_nodes(folder / "nodes", made["run"])
    made["dumps"] = write_dumps(folder / "dumps", made["run"])
    made["sweep"] = _sweep(folder / "sweep")
    made["snapshot"] = _memory_snapshot(folder / "snapshot.pickle")
    made |= {"graph": folder / "graph.npz", "cluster": folder / "cluster.yaml", "script": folder / "checks.yaml"}
    shape = GptShape(layers=2, hidden=8, sequence=4, microbatches=2)
    graph_file.save(gpt_job(Mesh.parse("pp=2,dp=2,tp=2"), shape), made["graph"])
    shutil.copyfile(ROOT / "examples" / "emulation" / "cluster.yaml", made["cluster"])
    shutil.copyfile(ROOT / "examples" / "ci" / "checks.yaml", made["script"])
    (folder / "edited").mkdir()
    (folder / "edited" / "train.py").write_text("print('edited')\n")
    return Corpus(bases=made, traps=traps, edited=folder / "edited", criu=criu)


def rank_json(cwd: Path, rank: int = 0, python: str = "/usr/bin/python3") -> dict[str, Any]:
    return {
        "rank": rank, "world_size": 2, "pid": 4711, "pid_namespace": 4026531836, "started_ticks": 5,
        "started_ns": 10**18, "seeds": {"torch": 7, "random": [*range(624), 624], "numpy.random": [0] * 625},
        "executable": python, "prefix": str(Path(python).parents[1]), "base_prefix": "/usr",
        "orig_argv": ["python3", "train.py", "--steps", "3"], "argv": ["train.py", "--steps", "3"],
        "cwd": str(cwd), "sys_path": ["", "/usr/lib/python3.11"], "environment": {"LANG": "C", "RANK": str(rank)},
        "redacted": ["API_KEY"], "redacted_arguments": ["--token"], "socket": "/run/prismdbg/0.sock",
        "inject": "/work/RUN/inject", "recorder": "python", "torch_threads": 1, "cpu_capability": "AVX2",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "prismdbg": "0.1.0"},
        "hardware": {"machine": "x86_64", "cpus": 2, "node": NODE, "kernel": "6.1"}, "uid": 0,
        "past_records": 0, "in_flight": [], "folders": ["/work/out"], "absent": ["/work/new"],
        "links": {"/work/named": "/work/real"},
    }  # fmt: skip


def write_log(folder: Path, rank: int = 0, *, is_whole: bool = False) -> Path:
    """Every kind of record: collectives, point-to-point, a failure, waits, steps, notes, four segments. is_whole: the
    job came to its end, so that its graph can be built."""
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
        log.complete(gathered, bytes(28), sent=step)
        if is_whole and rank:
            log.complete(log.issue(step, 3, op="recv_", root=0, flags=fmt.IssueFlag.P2P | 8, inputs=(), stack=stack))
        else:
            sent = log.issue(step, 3, op="send", root=1 - rank, flags=fmt.IssueFlag.P2P | 8, outputs=(), stack=stack)
            log.complete(sent)
        log.note("state", hash=f"{step:016x}", step=step)
        log.step(step + 1)
        log.next_segment()
    if is_whole:
        log.note("exit", code=0, moment="3.1")
        return folder
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
    trace.reserve(0x1000, 1 << 14, device=1)
    trace.allocate(1 << 10, "aten::empty", frames=frames, device=1)
    trace.release(0x2000, 1 << 12, device=1)
    return trace.write()


def _capsule(path: Path, manifest: Manifest, traps: Traps) -> Path:
    scratch = path.with_suffix(".parts")
    work = scratch / "work"
    work.mkdir(parents=True)
    (work / "train.py").write_text("print('hello')\n")
    (work / "data.bin").write_bytes(bytes(range(256)))
    (work / ".env").write_text("TOKEN=not-in-the-capsule\n")
    log = write_log(scratch / "log")
    with CapsuleWriter(path) as writer:
        writer.add_tree(layout.LOG, log)
        writer.add_json(layout.RANK, rank_json(work, python=traps.python))
        read = [str(work / name) for name in ("train.py", "data.bin", "gone.txt", ".env")]
        files.add_files(writer, [*read, str(traps.large)], small_bytes=100)
        library = next(file.path for file in traps.installed if file.path.endswith("library.so"))
        writer.add_json(layout.ENVIRONMENT, of_files(traps.installed, extra=[library]).to_json())
        writer.add_tree(layout.MEMORY, _trace(scratch / "memory"))
        _telemetry(scratch / "telemetry")
        writer.add_tree(layout.TELEMETRY, scratch / "telemetry")
        writer.add_bytes(layout.RANK_PACKAGE, rank_package.pack(_small_package(scratch / "prismdbg")))
        if manifest.origin is Origin.IMAGE:
            writer.add_checkpoint(write_images(scratch / "images", work))
        if manifest.origin is Origin.STATE:
            add_state(writer, scratch, manifest.rank)
        writer.finish(_manifest(manifest))
    return path


def _small_package(folder: Path) -> Path:
    (folder / "rank").mkdir(parents=True)
    shutil.copyfile(Path(prismdbg.__file__), folder / "__init__.py")
    (folder / "rank" / "boot.py").write_text("pass\n")
    return folder


def _memory_snapshot(path: Path) -> Path:
    """Of a GPU's allocator: blocks, one of them freed, and segments."""
    trace = TraceBuilder(path.with_name("snapshot"))
    older = trace.before(500, device=1)
    trace.reserve(0, 1 << 20, device=1)
    for size_bytes in (100, 200):
        trace.allocate(size_bytes, "mm", frames=(Frame("train.py", 4, "step"),), device=1)
    trace.free(older)
    trace.release(1 << 19, 1 << 19, device=1)
    write_snapshot(open_trace(trace.write()), path)
    return path


SUPERVISOR = {"pid": 4711, "started_ticks": 5, "boot_id": "b", "pid_namespace": 6}


def _run(path: Path, *, is_whole: bool = False) -> Path:
    for rank in range(2):
        folder = write_log(path / "ranks" / str(rank), rank, is_whole=is_whole)
        if rank:
            join(folder)
        (folder / "rank.json").write_text(json.dumps(rank_json(path, rank)))
        _trace(folder / "memory")
    _telemetry(path / "telemetry")
    incident = {"kind": "lost", "text": "rank 1 died", "ranks": [1], "attempt": 0, "moment": "3.2", "capsule": None}
    supervisor = {"incidents": [incident], "capsules": ["/work/c"], "problems": ["p"], "deaths": ["1", "0"]}
    _json(path / "supervisor.json", {**supervisor, "exit_code": 1, "ended_wall_ns": 10**18})
    _json(path / "config.json", {"mode": "record", "nan_check": True, "ranks": [], "window": "all"})
    _json(path / "run.json", {"command": ["python", "train.py"], "cwd": "/work", "started_wall_ns": 10**18,
                              "supervisor": SUPERVISOR, "version": "0.1.0", "python": "3.11.7"})  # fmt: skip
    _json(path / "environment.json", of_files([InstalledFile("/usr/bin/python3", 0o755, 5, 6)]).to_json())
    return path


def _telemetry(folder: Path) -> None:
    into = TelemetryWriter(folder, {"format": 1, "period_ns": 50_000_000, "wall_offset_ns": 10**18, "pid": 1})
    ran = Sensor("rank 0", "cpu_time", "ns", Kind.COUNTER)
    for reading in range(4):
        into.now_ns = reading * 50_000_000
        into.reading(ran, reading * 1000)
    into.missing("host", "energy", "no RAPL zone")
    into.close()


def _emulated(path: Path) -> Path:
    """As `emulate --classes` leaves it, with how far its passes were apart."""
    _run(path, is_whole=True)
    run = json.loads((path / "run.json").read_text())
    emulated = {"world": 2, "mesh": {"dp": 2}, "steps": 3, "peers": ["echo"], "seed": 0}
    _json(path / "run.json", {**run, "emulated": emulated})
    each = {"name": "as rank 0", "representative": 0, "bases": [0], "ranks": 2, "checked_with": [1], "assumed": False}
    classes = {"begins": {"dp": [0]}, "alike": ["dp"], "probed": ["dp"], "ran": [0, 1], "classes": [each]}
    _json(path / "classes.json", {"format": 1, **classes})
    return path


def _sweep(path: Path) -> Path:
    """Its own files, not its runs: of one that ran, one that failed, one that was left out, one without a result."""
    done = Result(
        name="tp=1", values={"tp": "1"}, state=State.DONE, mesh="dp=2", middle_ns=20, iteration_ns=(19, 20, 21),
        idle_share=0.1, exposed={"dp": 0.25}, late={"dp": 0.0}, peak_bytes=1 << 20, worth="all modelled", tokens=4096,
        message_bytes={"dp": 16.0}, link_share={"dp": 0.5}, computed=(0.5, 0.25), joules=3.5, peak_watts=70.0,
    )  # fmt: skip
    failed = Result(name="tp=2", values={"tp": "2"}, state=State.FAILED, why="rank 0 failed")
    left_out = Result(name="tp=4", values={"tp": "4"}, state=State.LEFT_OUT, why="predicted 40 ms")
    for name in (done.name, "tp=8"):
        (path / "trials" / name).mkdir(parents=True)
    _json(path / "trials" / done.name / "result.json", done.to_json())
    _json(path / "sweep.json", {"command": ["python", "train.py", "--tp", "{tp}"]})
    keep_comparison(path, [done, failed, left_out], 1 << 21)
    return path


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))
