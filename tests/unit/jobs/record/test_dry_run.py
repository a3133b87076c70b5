"""`record --dry-run`: what would be recorded is said, and nothing is started or made."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from prismdbg.cli.main import run
from prismdbg.errors import FacilityError, UsageError
from prismdbg.jobs.record import dry_run as module
from prismdbg.jobs.record import time_cost
from prismdbg.jobs.record.dry_run import dry_run
from prismdbg.jobs.record.incidents import parse_triggers
from prismdbg.jobs.record.record import RecordRequest
from prismdbg.jobs.record.supervisor import Policy

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "train.py", "--api-key", "hunter2")


def planned(tmp_path: Path, **options: object) -> tuple[dict[str, str], tuple[str, ...]]:
    chosen = dict(options.pop("policy", {}))  # type: ignore[call-overload]
    policy = Policy(**{"triggers": parse_triggers("nan,hang=5s"), "log_bytes": 1 << 20} | chosen)
    request = RecordRequest(output=tmp_path / "run", command=TORCHRUN, policy=policy, **options)  # type: ignore[arg-type]
    found = dry_run(request)
    return dict(found.rows), found.doubts


def test_nothing_is_started_and_nothing_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    line = ["record", "-o", str(tmp_path / "run"), "--dry-run", "--", sys.executable, "-c", f"open({str(made)!r}, 'w')"]
    assert run(line) == 0
    assert "captures on" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_it_says_what_would_be_recorded(tmp_path: Path) -> None:
    rows, doubts = planned(tmp_path, window_steps=8, window_bytes=1 << 30)
    assert "hunter2" not in rows["command"]
    assert rows["ranks"] == "4, of one node"
    assert rows["received data"] == "at least the last 8 steps, at most 1.0 GiB per rank"
    assert rows["captures on"] == "nan, hang=5s; at most 4 capsules"
    assert rows["disk"].startswith("at most 1.0 GiB per rank, 4.0 GiB in all, besides capsules; ")
    assert any("will not be replayable" in doubt for doubt in doubts)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"policy": {"checkpoint_every": 50}}, "what follows the older checkpoint that is kept"),
        ({"state_every": 50}, "what follows the older state snapshot"),
        ({"state_every": 50, "window_steps": 2}, "at least the last 2 steps and what follows the older state snapshot"),
        ({"window_steps": -1}, "all"),
    ],
)
def test_what_is_received_is_kept_for_every_origin(tmp_path: Path, options: dict[str, object], kept: str) -> None:
    rows, doubts = planned(tmp_path, **options, window_bytes=1 << 60)
    assert rows["received data"] == f"{kept}, at most 1024.0 PiB per rank"
    assert any("the disk may become full" in doubt for doubt in doubts)


@pytest.mark.parametrize(
    ("window_bytes", "most", "before"),
    [
        (1 << 20, "at most 3.0 MiB per rank, 12.0 MiB in all", "up to 257.0 MiB per rank"),  # twice --log-bytes
        (0, "what is written grows with the job", "all received data"),
    ],
)
def test_what_snapshots_take_is_counted(tmp_path: Path, window_bytes: int, most: str, before: str) -> None:
    rows, _ = planned(tmp_path, state_every=50, window_bytes=window_bytes)
    assert rows["state snapshots"] == (
        "every 50 steps; the newest 2 of each rank are kept, and what it received before its restore point"
    )
    assert rows["disk"].startswith(
        f"{most}, besides state snapshots, {before} from before its restore point, capsules; "
    )
    assert rows["received data"].endswith(", however much that is") is (window_bytes == 0)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"policy": {"checkpoint_every": 50}}, "at the newest checkpoint"),
        ({"state_every": 50}, "at the newest state snapshot"),
        ({"window_steps": -1}, "at the program's start"),
        ({}, "nowhere"),
    ],
)
def test_where_capsules_start(tmp_path: Path, options: dict[str, object], start: str) -> None:
    rows, doubts = planned(tmp_path, **options)
    assert rows["capsules start"].startswith(start)
    assert any("replayable" in doubt for doubt in doubts) is (start == "nowhere")


def test_what_this_machine_cannot_do_is_a_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> None:
        raise FacilityError("CRIU is not built")

    monkeypatch.setattr(module.choice, "find", lacking)
    monkeypatch.setattr(module, "_is_native_built", lambda: False)
    rows, doubts = planned(tmp_path, policy={"checkpoint_every": 5}, window_steps=2, window_bytes=1 << 60)
    said = "\n".join(doubts)
    assert "no checkpoint can be taken on this machine: CRIU is not built" in said
    assert "the native recorder is not built" in said and "the disk may become full" in said
    assert rows["recorder"].startswith("Python kernels")


@pytest.mark.parametrize(
    ("output", "command", "words"),
    [
        ("full", "true", "already exists and is not empty"),
        ("a:b", "true", "contains a colon"),
        ("new", "no-such-program", "no-such-program cannot be started: no such program"),
        ("full/file/new", "true", "cannot be created: not a directory: "),
    ],
)
def test_what_record_would_refuse_is_refused(
    tmp_path: Path, output: str, command: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert run(["record", "-o", str(tmp_path / output), "--dry-run", "--", command]) == 2
    said = capsys.readouterr().err
    assert words in said and "  try: " in said


def test_what_was_asked_for_has_its_row(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    rows, _ = planned(tmp_path)
    assert (rows["telemetry"], rows["sketches"], rows["memory"]) == ("none", "none", "not traced")
    assert rows["ranks write into"] == "RUN" and "telemetry" not in rows["disk"]
    few = rows["log"]
    rows, _ = planned(
        tmp_path,
        policy={"telemetry_ns": 100_000_000},
        sketches=True,
        memory=True,
        memory_cap=8 << 30,
        zero_memory=True,
        local=str(tmp_path / "scratch"),
    )
    assert rows["telemetry"] == "every 100 ms, by a process of its own; the newest 64.0 MiB of each node are kept"
    assert rows["sketches"] == "48 bytes of the floating-point data of each collective"
    assert rows["memory"].startswith(
        "every allocation is traced, 64 bytes for each event; beyond 8.0 GiB an allocation "
    )
    assert rows["memory"].endswith("filled with zeros, which slows them down")
    assert rows["ranks write into"].startswith(f"a new folder in {tmp_path / 'scratch'}; copied into RUN")
    assert "besides memory traces, 64.0 MiB of telemetry per node, capsules; " in rows["disk"]
    assert few.endswith("about 4,194 collectives") and rows["log"].endswith("about 3,518 collectives")


def test_a_local_folder_that_is_missing_is_refused_as_record_does(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        planned(tmp_path, local=str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("options", "took", "unmeasured"),
    [
        ({}, "recorded steps took 1.020 times as long, measured with a GPT of 6 M", ""),
        ({"window_steps": 4}, "recorded steps took 1.034 to 1.036 times as long, 1.203 times until", ""),
        (
            {"policy": {"checkpoint_every": 50}},
            "1.036 times as long, and 17.1 % more with checkpoints every 20 steps, measured with",
            "",
        ),
        (
            {"state_every": 100},
            "recorded steps took 0.982 times as long with snapshots of the state every 50 steps, 1.145 times before",
            "",
        ),
        ({"memory": True}, "; with --memory, a step of one process took 1.07 times the CPU time (docs/how-replay", ""),
        (
            {"window_steps": -1, "sketches": True, "zero_memory": True},
            "recorded steps took 1.020",
            "; not measured: --window all, --sketches, --zero-memory",
        ),
        ({"native": False}, "not measured with the Python kernels", ""),
    ],
)
def test_time_is_told_as_it_was_measured(
    options: dict[str, object], took: str, unmeasured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_is_native_built", lambda: True)
    rows, _ = planned(tmp_path, **options)
    assert took in rows["time"] and rows["time"].endswith(unmeasured)
    assert ("; not measured" in rows["time"]) is bool(unmeasured)


@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("measurements.md", f"| a step recorded with the default settings, against bare (*) | {time_cost.BARE} |*"),
        ("measurements.md", f"| a step with a payload window of one step, against bare | {time_cost.ONE_STEP} |*"),
        ("measurements.md", f"| a step with a payload window of 8 steps, against bare | {time_cost.EIGHT_STEPS} |*"),
        ("measurements.md", f"| the same while the window fills for the first time | {time_cost.FILLING} |*"),
        ("measurements.md", f"| checkpoints every 20 steps: more time than * | {time_cost.CHECKPOINTS} |*"),
        ("measurements.md", f"| a step with `--state-every 50`, against bare (*) | {time_cost.SNAPSHOTS} |*"),
        ("measurements.md", f"| the same in its first * steps, * | {time_cost.FIRST_SNAPSHOTS} |*"),
        ("measurements.md", f"*{time_cost.MEASURED_WITH}*"),
        ("how-replay-works.md", f"*in one process, tracing takes {time_cost.TRACED} times the CPU time of a step*"),
    ],
)
def test_its_figures_are_those_of_the_documentation(page: str, line: str) -> None:
    text = " ".join((Path(__file__).parents[4] / "docs" / page).read_text().split())
    assert fnmatchcase(text, f"*{line}*")
