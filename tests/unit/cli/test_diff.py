"""`prismdbg diff` on real folders: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from capsules import make_capsule
from tiny_log import TinyLog, write_training

from prismdbg.capsule.log import format as fmt
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.jobs import evidence
from prismdbg.jobs.storage import log_memory
from prismdbg.log.columns import LogColumns
from prismdbg.log.folding import fold
from prismdbg.log.summary import summarize
from prismdbg.model.collective import TensorMeta

SEGMENT_BYTES = 1 << 13


def run_of(path: Path, *, received: bytes = b"\0" * 16, op: str = "allreduce_") -> Path:
    """Two ranks; rank 1's last all_reduce received `received`."""
    for rank in range(2):
        log = TinyLog(path / "ranks" / f"{rank}.0", rank)
        log.group("0", (0, 1), "default_pg")
        log.complete(log.issue(0, 1), b"\1" * 16)
        log.complete(log.issue(0, 2, op=op), received if rank else b"\0" * 16)
    return path


def test_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_capsule(tmp_path / "capsule")
    write_training(tmp_path / "run" / "ranks" / "0.0")
    assert main.run(["diff", str(tmp_path / "capsule"), str(tmp_path / "run")]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "no difference: 6 collectives compared, 6 by what was sent, 6 by what was received" in printed
    assert "all_reduce" in printed and "1.00" in printed


def test_two_ranks_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(run_of(tmp_path / "run", received=b"\0\0\x80\x3f" + b"\0" * 12))
    assert main.run(["diff", path, "--rank", "0", "--rank", "1"]) == ExitCode.DIVERGED
    printed = capsys.readouterr().out
    assert "first difference: received other values" in printed
    assert "output[0] float32[4]: 1 element differs, by at most 1, relatively 1, the largest at [0]" in printed
    assert main.run(["diff", path, "--rank", "0", "--rank", "1", "--json"]) == ExitCode.DIVERGED
    found = json.loads(capsys.readouterr().out)
    assert (found["difference"]["aspect"], found["received"]) == ("received", 2)


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_has_enough_is_told_of_a_difference(
    more: list[str], tmp_path: Path, child_environment: dict[str, str], prismdbg_command: tuple[str, ...]
) -> None:
    path = run_of(tmp_path / "run", received=b"\0\0\x80\x3f" + b"\0" * 12)
    shell = ["bash", "-c", '"$@" 2>&1 | true; exit ${PIPESTATUS[0]}', "sh", *prismdbg_command]
    line = [*shell, "diff", str(path), "--rank", "0", "--rank", "1", *more]
    assert subprocess.run(line, env=child_environment, timeout=60).returncode == ExitCode.DIVERGED


def test_the_same_rank_of_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(run_of(tmp_path / "a")), str(run_of(tmp_path / "b", op="broadcast_"))]
    assert main.run(["diff", *paths, "--rank", "1"]) == ExitCode.DIVERGED
    assert "first difference: operator all_reduce and broadcast" in capsys.readouterr().out


def test_a_single_number_has_no_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = (TensorMeta((), "float32"),)
    for name, received in (("a", ZEROS[:4]), ("b", ONE[:4])):
        log = TinyLog(tmp_path / name / "ranks" / "0")
        log.group("0", (0, 1), "default_pg")
        log.complete(log.issue(0, 1, inputs=number, outputs=number), received)
    assert main.run(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == ExitCode.DIVERGED
    assert "output[0] float32[]: 1 element differs, by at most 1, relatively 1\n" in capsys.readouterr().out


ZEROS, ONE = b"\0" * 16, b"\0\0\x80\x3f" + b"\0" * 12
DIFFERS = "  output[0] float32[4]: 1 element differs, by at most 1, relatively 1, the largest at [0]\n"


def fixed_run(path: Path, *, sent: int = 1, received: tuple[bytes | None, bytes | None] = (ZEROS, ZEROS)) -> str:
    """One rank, whose second call sent `sent`. `received`: by this call and the next, None where it was not kept."""
    log = TinyLog(path / "ranks" / "0")
    log.group("0", (0, 1), "default_pg")
    log.complete(log.issue(0, 1), ZEROS)
    log.complete(log.issue(0, 2), received[0], sent=sent)
    log.complete(log.issue(1, 1), received[1])
    return str(path)


@pytest.mark.parametrize(
    ("received", "at", "said"),
    [
        ((ONE, ONE), ["0.2"], f"it received other values in the same call\n{DIFFERS}"),
        (
            (None, ONE),
            ["1.1"],
            f"it received other values at 1.1, the first call from here on whose kept data differs\n{DIFFERS}",
        ),
        ((ZEROS, ZEROS), [], "all data that it received from here on is equal, too, as far as it was kept\n"),
        (
            (None, None),
            [],
            "no received data from here on was kept by both: record both with --window all, or a larger window\n",
        ),
    ],
)
def test_before_and_after_a_fix(
    received: tuple[bytes | None, bytes | None],
    at: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What was sent is not recorded: what is compared element by element was received because of it."""
    paths = fixed_run(tmp_path / "before"), fixed_run(tmp_path / "after", sent=2, received=received)
    assert main.run(["diff", *paths]) == ExitCode.DIVERGED
    printed = capsys.readouterr().out
    assert printed.startswith("first difference: sent other values\n  A: 0.2 all_reduce in group world"), printed
    assert f"  {said}2 collectives compared, 2 by what was sent, 1 by what was received\n" in printed, printed
    assert main.run(["diff", *paths, "--json"]) == ExitCode.DIVERGED
    found = json.loads(capsys.readouterr().out)["difference"]
    assert [call["moment"] for call in found["received_in"]] == at * 2
    assert len(found["tensors"]) == len(at)


@pytest.mark.parametrize("kept", [ZEROS, None])
def test_a_computation_is_only_said_to_differ_if_what_it_received_was_compared(
    kept: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, sent in (("a", 1), ("b", 2)):
        log = TinyLog(tmp_path / name / "ranks" / "0")
        log.group("0", (0, 1), "default_pg")
        log.complete(log.issue(0, 1), kept)
        log.complete(log.issue(0, 2), sent=sent)
    assert main.run(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == ExitCode.DIVERGED
    printed = capsys.readouterr().out
    assert ("its own computation differs" in printed) is (kept is not None)
    assert ("it may have received other values before" in printed) is (kept is None)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (b"\0\0\0\x80" * 4, "all elements are equal as numbers: only signs of zeros or bits of NaNs differ"),
        (
            b"\0" * 12,
            "data that it received from here on cannot be compared, because it is damaged: "
            "a payload does not fit its tensor float32[4]",
        ),
    ],
)
def test_payloads_without_differing_elements(
    values: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = fixed_run(tmp_path / "after", sent=2, received=(ZEROS, values))
    assert main.run(["diff", fixed_run(tmp_path / "before"), after]) == ExitCode.DIVERGED
    assert f"\n  {said}" in capsys.readouterr().out


def test_nothing_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_capsule(tmp_path / "capsule")
    log = TinyLog(tmp_path / "run" / "ranks" / "0.0")
    log.complete(log.issue(99, 1))
    assert main.run(["diff", str(tmp_path / "capsule"), str(tmp_path / "run")]) == ExitCode.INCONCLUSIVE
    assert "nothing to compare" in capsys.readouterr().out


def long_run(path: Path, *, nan_at: int, op_at_1: str = "allreduce_", op_at_9: str = "allreduce_") -> Path:
    """10 steps of one rank, each in a segment of its own, of which all but the last are also in a summary."""
    log = TinyLog(path / "ranks" / "0", segment_bytes=SEGMENT_BYTES)
    log.group("0", (0, 1), "default_pg")
    for step in range(10):
        log.step(step)
        for number in (1, 2):
            op = {1: op_at_1, 9: op_at_9}.get(step, "allreduce_") if number == 1 else "allreduce_"
            is_nan = (step, number) == (nan_at, 1)
            log.complete(log.issue(step, number, op=op, flags=fmt.IssueFlag.SENT_NONFINITE if is_nan else 0))
        if step < 9:
            log.next_segment()
    summarize(log.folder)
    return path


@pytest.fixture
def only_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with logs that are larger than what is read of them."""
    monkeypatch.setattr(evidence, "LAST_BYTES", 2 * SEGMENT_BYTES)
    monkeypatch.setattr(evidence, "READ_BYTES", 0)


@pytest.mark.usefixtures("only_the_end")
def test_what_was_not_read_is_not_called_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They differ in step 1. The first NaN of each, which the summary keeps, is no difference either."""
    monkeypatch.setattr(log_memory, "TOLD_BYTES", 0)
    a, b = long_run(tmp_path / "a", nan_at=2), long_run(tmp_path / "b", nan_at=3, op_at_1="broadcast_")
    assert main.run(["diff", str(a), str(b)]) == ExitCode.INCONCLUSIVE
    printed = capsys.readouterr().out
    assert printed.startswith("inconclusive: no difference in what was read of both: 4 collectives compared"), printed
    assert "B was read from 8.1 on, without 16 earlier collectives of the rank: `prismdbg diff --whole`" in printed
    assert main.run(["diff", str(a), str(b), "--json"]) == ExitCode.INCONCLUSIVE
    found = json.loads(capsys.readouterr().out)
    assert found["difference"] is None and found["calls"] == 4
    assert found["begins"] == [{"moment": "8.1", "earlier": 16, "is_cut": True}] * 2
    assert main.run(["diff", str(a), str(b), "--whole"]) == ExitCode.DIVERGED
    told = capsys.readouterr()
    assert "first difference: operator all_reduce and broadcast" in told.out
    assert all(f"reading the logs of {run} completely takes about" in told.err for run in (a, b))


def test_what_was_not_read_of_many_ranks_is_not_called_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of whom so many rows are read instead of so many bytes."""
    for name, value in (("MANY", 0), ("READ_ROWS", 0), ("LEAST_ROWS", 4)):
        monkeypatch.setattr(evidence, name, value)
    a, b = long_run(tmp_path / "a", nan_at=-1), long_run(tmp_path / "b", nan_at=-1, op_at_1="broadcast_")
    assert main.run(["diff", str(a), str(b)]) == ExitCode.INCONCLUSIVE
    assert "B was read from 8.1 on" in capsys.readouterr().out


@pytest.mark.usefixtures("only_the_end")
def test_a_difference_in_the_end_of_long_logs_is_the_first_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = long_run(tmp_path / "a", nan_at=-1), long_run(tmp_path / "b", nan_at=-1, op_at_9="broadcast_")
    assert main.run(["diff", str(a), str(b)]) == ExitCode.DIVERGED
    printed = capsys.readouterr().out
    assert "first difference in what was read of both: operator all_reduce and broadcast" in printed, printed
    assert "A was read from 8.1 on" in printed


@pytest.mark.usefixtures("only_the_end")
def test_ends_that_have_nothing_in_common_are_told_as_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, other = long_run(tmp_path / "a", nan_at=-1), run_of(tmp_path / "b")
    assert main.run(["diff", str(a), str(other), "--rank", "0"]) == ExitCode.INCONCLUSIVE
    printed = capsys.readouterr().out
    assert "A and B have no collective in common in what was read of both" in printed, printed
    assert main.run(["diff", str(a), str(other), "--rank", "0", "--whole"]) == ExitCode.OK


def test_what_a_log_no_longer_has_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`record` dropped the oldest part of A; what it keeps of it is no difference."""
    a, b = long_run(tmp_path / "a", nan_at=2), long_run(tmp_path / "b", nan_at=2)
    assert fold(a / "ranks" / "0", 3 * SEGMENT_BYTES)
    assert main.run(["diff", str(a), str(b), "--whole"]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert printed.startswith("no difference: "), printed
    assert "A does not contain " in printed and "B does not" not in printed, printed


def test_two_recordings_share_what_is_read_of_long_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one recording is read once, though two of its ranks are compared."""
    read: list[int | None] = []
    real = evidence.read_columns

    def noted(folder: Path, newest_bytes: int | None = None, newest_rows: int | None = None) -> LogColumns:
        read.append(newest_bytes)
        return real(folder, newest_bytes, newest_rows)

    monkeypatch.setattr(evidence, "read_columns", noted)
    a, b = str(run_of(tmp_path / "a")), str(run_of(tmp_path / "b"))
    assert main.run(["diff", a, b, "--rank", "0"]) == ExitCode.OK
    assert read == [evidence.READ_BYTES // 4] * 4
    read.clear()
    assert main.run(["diff", a, "--rank", "0", "--rank", "1"]) == ExitCode.OK
    assert read == [evidence.READ_BYTES // 2] * 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "nothing to compare with"),
        (["RUN"], "has 2 ranks"),
        (["--rank", "0", "--rank", "1", "--rank", "1"], "--rank is given 3 times"),
        (["--rank", "0", "--rank", "5"], "no log of rank 5"),
        (["nowhere"], "no such file or directory"),
    ],
)
def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str) -> None:
    path = str(run_of(tmp_path / "run"))
    assert main.run(["diff", path, *(path if word == "RUN" else word for word in more)]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
