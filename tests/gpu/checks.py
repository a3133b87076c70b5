"""What is checked on a GPU. Each check gives rows of figures, or raises `Failed`; its docstring is its title."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from prismdbg.capsule.log.notes import DEVICE_WAITS
from prismdbg.capsule.log.reader import read_log
from prismdbg.checkpoint import choice
from prismdbg.checkpoint.gpu_facts import open_devices
from prismdbg.errors import PrismError
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.replay.memory_trace import recorded_trace
from prismdbg.model.schedule import Schedule
from prismdbg.model.sizes import size as size_text
from prismdbg.rank.native import build
from tests.gpu.jobs import CLI, PROGRAMS, ROOT, Done, Failed, Jobs, launched
from tests.gpu.memory_agrees import differences

Rows = list[tuple[str, str]]
NVML_CONFORMANCE = ROOT / "tests" / "unit" / "telemetry" / "nvml_conformance.py"


class Skipped(Exception):
    """This machine lacks something."""


def fingerprints(jobs: Jobs) -> Rows:
    """Fingerprints that the device works out are those of the host"""
    build.build(cache_dir())
    (found,) = jobs.run(sys.executable, PROGRAMS / "scanned.py").objects()
    return [("tensors compared", f"{found['compared']:,}")]


def start_origin(jobs: Jobs) -> Rows:
    """Two gloo ranks train on CUDA, recorded from the start; rank 1 is replayed from the program's start"""
    bare = jobs.bare(2, "gpt_steps.py", *jobs.sized, "--steps", "8").objects()
    run, done = jobs.record(2, "gpt_steps.py", *jobs.sized, "--steps", "8", options=("--window", "all"))
    same = checksums(bare) == checksums(done.objects())
    if not same:
        raise Failed(f"the recorded job computed {checksums(done.objects())}, the bare one {checksums(bare)}")
    capsule = jobs.new("capsule")
    jobs.prismdbg("capture", run, "--rank", "1", "--origin", "start", "-o", capsule)
    rows = [("parameters of the recorded job and of the bare one", "equal, bit for bit")]
    said = jobs.prismdbg("replay", capsule, "--runtime", "local").output
    return [*rows, ("replay, runtime local", verdict(said))]


def state_origin(jobs: Jobs) -> Rows:
    """The same with a state snapshot every 4 steps, and one rank over NCCL; rank 0 is replayed from a snapshot"""
    rows = []
    for backend, ranks in (("gloo", 2), ("gloo" if jobs.sized else "nccl", 1)):
        words = ("gpt_steps.py", *jobs.sized, "--backend", backend, "--steps", "12")
        run, _ = jobs.record(ranks, *words, options=("--state-every", "4"))
        capsule = jobs.new("capsule")
        jobs.prismdbg("capture", run, "--rank", "0", "--origin", "state", "-o", capsule)
        said = jobs.prismdbg("replay", capsule, "--runtime", "local").output
        rows.append((f"replay of rank 0 of {ranks}, {backend}, runtime local", verdict(said)))
    return rows


def image_origin(jobs: Jobs) -> Rows:
    """Two gloo ranks train on CUDA; rank 1 is captured while they run, and replayed from this checkpoint"""
    require_criu()
    words = ("gpt_steps.py", *jobs.sized, "--steps", "80" if jobs.sized else "300")
    bare = jobs.bare(2, *words).objects()
    run, capsule = jobs.new("run"), jobs.new("capsule")
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(jobs.prismdbg, "record", "-o", run, "--", *launched(2, *words))
        wait_until(lambda: (run / "ranks" / "1" / "rank.json").exists() or recording.done(), "rank 1 to start")
        taken = jobs.prismdbg("capture", run, "--rank", "1", "-o", capsule, expect=None)
        done = recording.result()
    if taken.code != 0:
        raise Failed(f"capture ended with {taken.code}: {taken.errors[-800:]}")
    if checksums(bare) != checksums(done.objects()):
        raise Failed(f"the captured job computed {checksums(done.objects())}, the bare one {checksums(bare)}")
    took = next(line for line in (taken.output + taken.errors).splitlines() if "checkpoint of" in line)
    rows = [("parameters of the captured job and of the bare one", "equal, bit for bit"), ("capture", took.strip())]
    said = jobs.prismdbg("replay", capsule, "--runtime", "local").output
    return [*rows, ("replay, runtime local", verdict(said))]


def killed_capture(jobs: Jobs) -> Rows:
    """`capture` of a rank with CUDA is killed (-9) while the rank's state is in its memory; the job goes on"""
    require_criu()
    if jobs.sized:
        raise Skipped("needs a GPU: there is no state to be moved")
    words = ("gpt_steps.py", "--steps", "300")
    bare = jobs.bare(2, *words).objects()
    run = jobs.new("run")
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(jobs.prismdbg, "record", "-o", run, "--", *launched(2, *words))
        where = run / "ranks" / "1" / "rank.json"
        wait_until(lambda: where.exists() or recording.done(), "rank 1 to start")
        pid = int(json.loads(where.read_text())["pid"])
        wait_until(lambda: bool(open_devices(pid)) or recording.done(), "rank 1 to use the GPU")
        line = [sys.executable, "-c", CLI, "capture", str(run), "--rank", "1", "-o", str(jobs.new("capsule"))]
        with subprocess.Popen(line, cwd=ROOT, stderr=subprocess.DEVNULL) as taking:
            wait_until(lambda: not open_devices(pid) or taking.poll() is not None, "the state to be moved")
            taking.kill()
        back = time.monotonic()
        wait_until(lambda: bool(open_devices(pid)) or recording.done(), "the state to be back")
        took = time.monotonic() - back
        done = recording.result()
    if taking.returncode != -9:
        raise Failed(f"the capture was not killed: it ended with {taking.returncode}")
    if checksums(bare) != checksums(done.objects()):
        raise Failed(f"the job computed {checksums(done.objects())}, the bare one {checksums(bare)}")
    return [("the rank's state was back on the GPU after", f"{took:.1f} s"), ("parameters", "those of the bare job")]


def incident_image(jobs: Jobs) -> Rows:
    """Rank 1 of two sends NaN from step 60 on, with checkpoints every 20 steps; its capsule is replayed"""
    require_criu()
    run, done = jobs.record(
        2, "gpt_steps.py", *jobs.sized, "--steps", "80", "--nan-at", "60", options=("--checkpoint-every", "20")
    )
    capsules = sorted((run / "capsules").glob("*rank1*")) or sorted((run / "capsules").iterdir())
    if not capsules:
        raise Failed(f"no capsule was made: {done.errors[-800:]}")
    saved = sorted(path.name for path in (run / "checkpoints" / "1").glob("[0-9]*"))
    if not saved:
        raise Failed(f"no checkpoint was taken: {done.errors[-800:]}")
    said = jobs.prismdbg("inspect", capsules[0]).output
    origin = next((" ".join(line.split()) for line in said.splitlines() if "origin" in line.lower()), "")
    said = jobs.prismdbg("replay", capsules[0], "--runtime", "local").output
    kept = ("checkpoints of rank 1 that were kept, by their moments", ", ".join(saved))
    return [kept, ("capsule", f"{capsules[0].name}: {origin}"), ("replay, runtime local", verdict(said))]


def time_travel(jobs: Jobs) -> Rows:
    """The debugger goes back to a checkpoint that it took of a replayed rank with CUDA: values as before"""
    require_criu()
    run, _ = jobs.record(1, "gpt_steps.py", *jobs.sized, "--steps", "8", options=("--window", "all"))
    capsule = jobs.new("capsule")
    jobs.prismdbg("capture", run, "--rank", "0", "--origin", "start", "-o", capsule)
    lines = (
        "until 5.1",
        "print loss",
        "checkpoint",
        "until 7.1",
        "print loss",
        "goto 5.1",
        "print loss",
        "until 7.1",
        "print loss",
    )
    typed = "".join(f"{line}\n" for line in (*lines, "quit"))
    said = jobs.prismdbg("debug", capsule, "--runtime", "local", typed=typed, expect=None)
    parts = [part.split("\n", 1)[1].strip() for part in said.output.split("(prismdbg) ")[1:] if "\n" in part]
    shown = [" ".join(text.split()) for line, text in zip(lines, parts, strict=False) if line == "print loss"]
    kept = dict(zip(lines, parts, strict=False)).get("checkpoint", "")
    if (
        not kept.startswith("checkpoint ")
        or len(shown) != 4
        or shown[0] != shown[2]
        or shown[1] != shown[3]
        or shown[0] == shown[1]
    ):
        raise Failed(f"the debugger showed {shown}: {said.output[-1500:]} {said.errors[-800:]}")
    return [
        ("checkpoint", kept.splitlines()[0]),
        ("loss at 5.1, at 7.1, after the return to 5.1, at 7.1 again", " | ".join(shown)[:400]),
    ]


def first_nan(jobs: Jobs) -> Rows:
    """Rank 1 of two sends NaN from step 4 on: `why` names it, and a replay stops there"""
    run, _ = jobs.record(2, "gpt_steps.py", *jobs.sized, "--steps", "8", "--nan-at", "4", options=("--window", "all"))
    said = jobs.prismdbg("why", run, expect=None).output
    line = next((line.strip() for line in said.splitlines() if "NaN" in line), "")
    if "rank 1 sent the first NaN" not in line:
        raise Failed(f"why says: {said[:600]}")
    capsule, commands = jobs.new("capsule"), jobs.new("commands")
    jobs.prismdbg("capture", run, "--rank", "1", "--origin", "start", "-o", capsule)
    commands.write_text("break nan\ncontinue\nprint loss\nprint tokens\n")
    said = jobs.prismdbg("replay", capsule, "--runtime", "local", "-x", commands, expect=None).output
    shown = [
        " ".join(line.split()) for line in said.splitlines() if "loss" in line or "tokens" in line or "nan" in line
    ]
    if not any("nan" in line for line in shown):
        raise Failed(f"the replay says: {said[-800:]}")
    return [("`why`", line.replace(str(ROOT), "")), ("`replay -x`", "; ".join(shown)[:600])]


def sync_calls(jobs: Jobs) -> Rows:
    """One NCCL rank: what calls receive that are not asynchronous is kept, and a replay from the start is identical"""
    backend = () if jobs.sized else ("--backend", "nccl")
    words = (*jobs.sized, *backend, "--steps", "8")
    run, _ = jobs.record(1, "gpt_steps.py", *words, options=("--window", "all"))
    calls = [call for call in read_log(run / "ranks" / "0").collectives if not call.is_async and call.outputs]
    missing = [str(call.moment) for call in calls if call.payload is None]
    if missing or not calls:
        raise Failed(f"{len(calls)} calls, without what was received: {', '.join(missing[:10])}")
    capsule = jobs.new("capsule")
    jobs.prismdbg("capture", run, "--rank", "0", "--origin", "start", "-o", capsule)
    said = jobs.prismdbg("replay", capsule, "--runtime", "local").output
    return [("calls", str(len(calls))), ("replay, runtime local", verdict(said))]


def nccl_refused(jobs: Jobs) -> Rows:
    """A rank with an NCCL communicator cannot be saved: `capture` says so at once, and the job goes on"""
    backend = () if jobs.sized else ("--backend", "nccl")
    words = ("gpt_steps.py", *jobs.sized, *backend, "--steps", "80" if jobs.sized else "600")
    run = jobs.new("run")
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(jobs.prismdbg, "record", "-o", run, "--", *launched(1, *words))
        log = run / "ranks" / "0" / "rank.json"
        wait_until(lambda: (log.exists() and is_recorded(run)) or recording.done(), "rank 0 to issue a collective")
        said = jobs.prismdbg("capture", run, "--rank", "0", "-o", jobs.new("capsule"), expect=None)
        done = recording.result()
    if backend and (said.code == 0 or "it has an NCCL communicator" not in said.errors):
        raise Failed(f"capture ended with {said.code}: {said.errors[-600:]}")
    if not done.objects():
        raise Failed(f"the job ended without its result: {done.errors[-600:]}")
    return [("`capture`", next((line for line in said.errors.splitlines() if "NCCL" in line), ""))]


def is_recorded(run: Path) -> bool:
    return bool(read_log(run / "ranks" / "0").collectives)


def nccl_calls(jobs: Jobs) -> Rows:
    """One NCCL rank: microseconds of the host for an all_reduce, bare and recorded; none may wait for a busy device"""
    kinds: dict[str, tuple[str, ...] | None] = {"bare": None, "recorded": (), "window of 8 steps": ("--window", "8")}
    rows, waited = [], []
    for kind, options in kinds.items():
        if options is None:
            done = jobs.bare(1, "nccl_calls.py")
        else:
            _, done = jobs.record(1, "nccl_calls.py", options=options)
        for size, figures in done.objects()[0].items():
            rows.append(
                (
                    f"{size_text(int(size))}, {kind}",
                    f"issued in {figures['issue_us']:.1f}, done in {figures['done_us']:.1f}, "
                    f"behind a busy device issued in {figures['behind_busy_device_us']:.0f}",
                )
            )
            if figures["behind_busy_device_us"] > 20_000:
                waited.append(f"{size} bytes, {kind}")
    if waited:
        raise Failed(f"calls waited for the device: {'; '.join(waited)}")
    return rows


def steps(jobs: Jobs) -> Rows:
    """Time of a step of a GPT with 85 million parameters under DDP, one NCCL rank: pairs in turn, recorded to bare"""
    words = ("--steps", "30", "--backend", "nccl", "--width", "768", "--layers", "12", "--batch", "32")
    kinds: dict[str, tuple[str, ...]] = {"recorded": (), "window of 8 steps": ("--window", "8")}
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(jobs.pairs):
        bare = step_s(jobs.bare(1, "gpt_steps.py", *words).objects())
        for kind, options in kinds.items():
            ratios[kind].append(step_s(jobs.record(1, "gpt_steps.py", *words, options=options)[1].objects()) / bare)
    rows = [(kind, ", ".join(f"{ratio:.3f}" for ratio in found)) for kind, found in ratios.items()]
    return [*rows, ("a bare step", f"{1e3 * bare:.1f} ms")]


def captured_graph(jobs: Jobs) -> Rows:
    """A collective that a CUDA graph captures is recorded without harm"""
    bare = jobs.bare(1, "captured_graph.py").output.strip()
    rows = []
    kinds = {"recorded": (), "with a window": ("--window", "8"), "by the Python kernels": ("--python-kernels",)}
    for kind, options in kinds.items():
        _, done = jobs.record(1, "captured_graph.py", options=options)
        if done.output.strip() != bare:
            raise Failed(f"{kind}: {done.output.strip()!r}, bare: {bare!r}")
        rows.append((kind, f"{bare}, as bare"))
    return rows


def telemetry(jobs: Jobs) -> Rows:
    """NVML's sensors of a recorded job"""
    run, _ = jobs.record(2, "gpt_steps.py", *jobs.sized, "--steps", "40", options=("--telemetry", "50ms"))
    said = jobs.prismdbg("telemetry", run).output
    rows = []
    for line in said.splitlines():
        match = re.match(r"gpu \S+\s+(power|temperature|sm_clock|utilization)\s+(.+)", line)
        if match:
            rows.append((match[1], " ".join(match[2].split())))
    if not rows:
        raise Failed(f"no sensor of the GPU was read: {said[:500]}")
    return rows


def sensors(jobs: Jobs) -> Rows:
    """NVML through the collector: each reading is of its kind and range, or missing with a reason"""
    (found,) = jobs.run(sys.executable, NVML_CONFORMANCE, "11").objects()
    if reason := found["missing"].get("gpu/nvml"):
        raise Skipped(reason)
    fake = [name for name, (provenance, *_) in found["readings"].items() if provenance == "fake"]
    if fake or not any(name.endswith("/temperature") for name in found["readings"]):
        raise Failed(f"fake: {fake}, read: {sorted(found['readings'])}")
    missing = sorted(f"{name.rpartition('/')[2]}: {why}" for name, why in found["missing"].items())
    return [("sensors read", str(len(found["readings"]))), ("not available", "; ".join(missing) or "none")]


def memory_trace(jobs: Jobs) -> Rows:
    """A GPT's memory by torch's allocator, by the tracer's counts, and by its trace: equal to the byte"""
    rows, differing = [], []
    for name, words in (
        ("usual", ()),
        ("emptied caches", ("--empty-cache",)),
        ("a second stream", ("--other-stream",)),
        ("NCCL", ("--backend", "nccl")),
    ):
        run, done = jobs.record(1, "traced_gpt.py", *words, options=("--memory",))
        (found,) = done.objects()
        trace = recorded_trace(run, None)
        if trace is None or found["untraced"]:
            raise Failed(f"{name}: not traced: {found['untraced']}")
        differing += [f"{name}, {what}: {told}" for what, told in differences(trace, found).items()]
        said = ", ".join(f"{what.replace('_', ' ')} {value:,}" for what, value in found["torch"].items())
        rows.append((name, f"{said}, in {found['records']:,} records"))
    if differing:
        raise Failed("; ".join(differing))
    return rows


def memory_cap(jobs: Jobs) -> Rows:
    """A program that wants more of the GPU than --memory-cap lets it have"""
    run = jobs.new("run")
    words = launched(1, "traced_gpt.py", "--width", "1024", "--layers", "8", "--batch", "64")
    done = jobs.prismdbg("record", "-o", run, "--memory-cap", "1GiB", "--", *words, expect=None)
    line = next((line for line in done.errors.splitlines() if "OutOfMemoryError" in line), "")
    if done.code == 0 or not line:
        raise Failed(f"ended with {done.code}: {done.errors[-600:]}")
    return [("ended with", line.strip()[:200])]


def emulated(jobs: Jobs) -> Rows:
    """A rank of 8,192 (pp=16, dp=64, tp=8) of a GPT of 32 layers of width 4096, alone on the GPU"""
    run = jobs.new("run")
    done = jobs.prismdbg(
        "emulate", "-v", "-o", run, "--mesh", "pp=16,dp=64,tp=8", "--ranks", "0", "--ranks-per-node", "8", "--",
        sys.executable, PROGRAMS / "gpt_3d.py",
    )  # fmt: skip
    figures = done.objects()[0] if done.objects() else Done(0, done.errors, "").objects()[0]
    return [
        ("initialisation", f"{figures['init_s']:.2f} s, {size_text(figures['init_bytes'])}"),
        ("steps", ", ".join(f"{s:.3f} s" for s in figures["step_s"])),
        (
            "peak memory",
            f"{size_text(figures['peak_bytes'])} of tensors, {size_text(figures['reserved_bytes'])} reserved",
        ),
    ]


def paced_overlap(jobs: Jobs) -> Rows:
    """A paced rank of two computes beside an asynchronous all_reduce, and after one: a step takes the longer of both,
    and the sum"""
    device = ("--device", "cpu") if jobs.sized else ()
    rows, wrong = [], []
    for mode in ("overlap", "serial"):
        run, cluster = jobs.new("run"), jobs.new("cluster.yaml")
        jobs.folder.mkdir(parents=True, exist_ok=True)
        cluster.write_text("ranks_per_node: 2\ntiers:\n  link: {spans: job, latency: 8 ms, bandwidth: 100 GB/s}\n")
        jobs.prismdbg(
            "emulate", "-o", run, "--world", "2", "--mesh", "dp=2", "--ranks", "0", "--alike", "dp", "--pace", "wall",
            "--passes", "1", "--cluster", cluster, "--", sys.executable, PROGRAMS / "paced_overlap.py", mode, *device,
        )  # fmt: skip
        found = Done(0, (run / "output" / "0.txt").read_text(), "").objects()[-1]
        schedule = Schedule.load(run / "passes" / "1" / "schedule.0.json")
        transfer_s = sum(row.transfer_ns for row in schedule.rows if row.is_call) / 1e9
        compute_s, paced = found["compute_s"], [found["steps"][step] for step in schedule.steps]
        step_s, issued_s = (median(step[name] for step in paced) for name in ("step_s", "issued_s"))
        expected_s = max(compute_s, transfer_s) if mode == "overlap" else compute_s + transfer_s
        log = read_log(run / "ranks" / "0")
        took_s = median(
            ((call.time_completed_ns or 0) - call.time_created_ns) / 1e9
            for call in log.collectives
            if call.moment.step in schedule.steps
        )
        (note,) = (note.data for note in log.notes if note.kind == DEVICE_WAITS and "calls" in note.data)
        off = abs(note["took_ns"] - note["asked_ns"]) / note["asked_ns"]
        rows += [
            (
                f"{mode}: computing alone, transfer as modelled, expected, step",
                ", ".join(f"{1e3 * s:.1f} ms" for s in (compute_s, transfer_s, expected_s, step_s)),
            ),
            (
                f"{mode}: the host issued a step in, the log says of a transfer",
                f"{1e3 * issued_s:.1f} ms, {1e3 * took_s:.1f} ms",
            ),
            (
                f"{mode}: {note['calls']} waits, all of them off by; in the calibration",
                f"{off:.1%}; {note['residual']:.1%}",
            ),
        ]
        if abs(step_s / expected_s - 1) > 0.15 or issued_s > transfer_s / 2 or abs(took_s / transfer_s - 1) > 0.15:
            wrong.append(mode)
    if wrong:
        raise Failed(f"{', '.join(wrong)}: {'; '.join(f'{name}: {value}' for name, value in rows)}")
    return rows


def require_criu() -> None:
    try:
        choice.find()
    except PrismError as error:
        raise Skipped(str(error)) from error


def wait_until(is_true: Callable[[], bool], what: str, bound_s: float = 60.0) -> None:
    deadline = time.monotonic() + bound_s
    while not is_true():
        if time.monotonic() > deadline:
            raise Failed(f"waited {bound_s:.0f} s for {what}")
        time.sleep(0.05)


def checksums(ranks: Sequence[Mapping[str, Any]]) -> set[str]:
    return {str(rank["checksum"]) for rank in ranks}


def step_s(ranks: Sequence[Mapping[str, Any]]) -> float:
    """The median of a rank's steps, without the first ones."""
    return median(ranks[0]["step_s"][5:])


def verdict(said: str) -> str:
    line = next((line for line in said.splitlines() if line.startswith("identical")), "")
    if not line:
        raise Failed(f"the replay is not identical: {said[:600]}")
    return line


CHECKS: list[Callable[[Jobs], Rows]] = [
    fingerprints,
    captured_graph,
    start_origin,
    state_origin,
    image_origin,
    killed_capture,
    incident_image,
    time_travel,
    first_nan,
    sync_calls,
    nccl_refused,
    telemetry,
    sensors,
    memory_trace,
    memory_cap,
    emulated,
    paced_overlap,
    nccl_calls,
    steps,
]
TIMED = (emulated, paced_overlap, nccl_calls, steps)  # alone on the machine, after all others
