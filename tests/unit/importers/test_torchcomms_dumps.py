"""Dumps of torchcomms' Flight Recorder hook. They are built here after what torchcomms' source writes: no file of
torchcomms itself was at hand."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prismdbg.cli.main import cli
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.importers import flight_recorder
from prismdbg.importers.flight_recorder import find_dumps, read_dumps
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.importers.torch_names import OPS_BY_TITLE
from prismdbg.jobs.evidence import gather
from prismdbg.model.collective import State
from prismdbg.model.ops import OPS

BEGAN_NS = 1_790_000_000_000_000_000
WORLD = {"world": "[0,1]"}
# All that its `opToString` gives, without what is no collective: split, new_window, batch_op_issue, finalize.
TITLES = (
    *("send", "recv", "broadcast", "all_reduce", "reduce", "all_gather", "all_gather_v", "all_gather_single"),
    *("reduce_scatter", "reduce_scatter_v", "reduce_scatter_single", "all_to_all", "all_to_all_single"),
    *("all_to_all_v_single", "barrier", "scatter", "gather", "gather_single"),
)


def call(number: int, op: str = "all_reduce", comm: str = "world", **other: Any) -> dict[str, Any]:
    """Over, as on CPUs: retired, with the host's time as its duration."""
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": (comm, "ncclx"),
        "thread_name": "python",
        "thread_id": "139973510892416",
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"ncclx:{op}",
        "time_created_ns": BEGAN_NS + number,
        "duration_ms": 2.0,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    } | other


def waiting(number: int, op: str = "all_reduce", comm: str = "world") -> dict[str, Any]:
    found = call(number, op, comm, retired=False)
    del found["duration_ms"]
    return found


def dump(*entries: dict[str, Any], comms: Mapping[str, str] = WORLD) -> dict[str, Any]:
    config = {name: {"name": name, "desc": "ncclx", "ranks": ranks} for name, ranks in comms.items()}
    return {
        "version": "2.10",
        "pg_config": config,
        "comm_lib_version": "",
        "pg_status": {},
        **({"entries": list(entries)} if entries else {}),
    }


def as_json(value: dict[str, Any]) -> bytes:
    """As `dump_json`: sorted, and 0 for a time that is not known."""
    for entry in value.get("entries", []):
        entry.update({name: entry[name] or 0 for name in entry if name.startswith("time_discovered")})
    return json.dumps(value, sort_keys=True).encode()


def write(folder: Path, *dumps: dict[str, Any], form: Callable[[Any], bytes] = pickle.dumps) -> Path:
    folder.mkdir(exist_ok=True)
    for rank, each in enumerate(dumps):
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(form(each))
    return folder


def job(folder: Path) -> ImportedJob:
    return read_dumps(find_dumps(folder))


def diagnosed(folder: Path) -> Diagnosis:
    return diagnose(gather(folder))


def numbers(found: ImportedJob, rank: int) -> list[tuple[str, int]]:
    return [(call.group, call.identity.seq) for call in found.logs[rank].collectives]


@pytest.mark.parametrize("form", [pickle.dumps, as_json])
def test_a_call_is_what_the_dump_says(tmp_path: Path, form: Callable[[Any], bytes]) -> None:
    found = job(write(tmp_path / "d", dump(call(0), waiting(1, "all_gather_single")), form=form))
    first, second = found.logs[0].collectives
    assert (first.op, first.group, first.state, first.duration_ns) == (
        "allreduce_",
        "world",
        State.COMPLETED,
        2_000_000,
    )
    assert (str(first.inputs[0]), first.timeout_ms, first.frames) == ("float32[4, 2]", 0, ())
    assert (second.op, second.state, second.time_completed_ns) == ("_allgather_base_", State.SCHEDULED, None)
    assert (found.logs[0].groups["world"].ranks, found.logs[0].groups["world"].title) == ((0, 1), "world")


def test_every_operator_has_our_name() -> None:
    assert {OPS_BY_TITLE[title] for title in TITLES} <= set(OPS)


def test_the_end_that_the_gpu_noted_counts_more_than_the_duration(tmp_path: Path) -> None:
    timed = call(0, state="completed", time_discovered_completed_ns=BEGAN_NS + 7)
    assert job(write(tmp_path / "d", dump(timed))).logs[0].collectives[0].duration_ns == 7


@pytest.mark.parametrize("form", [pickle.dumps, as_json])
def test_a_rank_that_never_came_is_named(tmp_path: Path, form: Callable[[Any], bytes]) -> None:
    folder = write(tmp_path / "d", dump(call(0), waiting(1)), dump(call(0)), form=form)
    verdict = diagnosed(folder).verdicts[0]
    assert (verdict.kind, verdict.certainty, verdict.ranks[0]) == ("stopped", Certainty.LIKELY, 1)


@pytest.mark.parametrize("form", [pickle.dumps, as_json])
def test_a_rank_without_a_call_has_a_dump_without_entries(tmp_path: Path, form: Callable[[Any], bytes]) -> None:
    folder = write(tmp_path / "d", dump(waiting(0)), dump(), form=form)
    assert diagnosed(folder).verdicts[0].ranks[0] == 1 and not job(folder).damaged


def test_calls_are_counted_in_each_communicator(tmp_path: Path) -> None:
    """Rank 0 is in two, so that torchcomms numbers the same call of the ranks differently."""
    both = {"world": "[0,1]", "own": "[0]"}
    folder = write(
        tmp_path / "d",
        dump(call(0, comm="own"), call(1), call(2, comm="own"), call(3, "barrier"), comms=both),
        dump(call(0), call(1, "barrier")),
    )
    found = job(folder)
    assert numbers(found, 0) == [("own", 0), ("world", 0), ("own", 1), ("world", 1)]
    assert numbers(found, 1) == [("world", 0), ("world", 1)]
    assert diagnosed(folder).verdicts == ()


def test_communicators_of_one_name_and_other_members_are_two(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "d",
        *(dump(call(0, comm="tp"), comms={"tp": "[0,1]"}) for _ in range(2)),
        *(dump(call(0, "broadcast", comm="tp"), comms={"tp": "[2,3]"}) for _ in range(2)),
    )
    groups = job(folder).logs[0].groups
    assert {name: group.ranks for name, group in groups.items()} == {"tp [0,1]": (0, 1), "tp [2,3]": (2, 3)}
    assert diagnosed(folder).verdicts == ()


@pytest.mark.parametrize("op", ["send", "recv", "batch_op_issue"])
def test_messages_are_no_collectives(tmp_path: Path, op: str) -> None:
    folder = write(tmp_path / "d", dump(call(0, op), call(1), waiting(2, op)), dump(call(0)))
    assert numbers(job(folder), 0) == [("world", 0)]
    found = diagnosed(folder)
    assert found.verdicts == ()
    assert any(line.startswith("2 sends and receives left out") for line in found.missing)
    assert f"the last call of rank 0 is a {op} in group 'world', and not over" in found.missing


def test_splits_and_windows_are_calls_of_all_members(tmp_path: Path) -> None:
    calls = [call(0, "split"), call(1, "new_window"), call(2)]
    folder = write(tmp_path / "d", dump(*calls), dump(*calls[:1]))
    assert [each.op for each in job(folder).logs[0].collectives] == ["split", "new_window", "allreduce_"]


class TestOfALongJob:
    """The ring of the recorder keeps the last calls."""

    def test_calls_are_compared_by_number_where_the_numbers_agree(self, tmp_path: Path) -> None:
        comms = {"world": "[0,1]", "tp": "[0,1]"}
        calls = [call(n, comm="tp" if n % 3 else "world") for n in range(50, 70)]
        late = dump(*calls[5:], waiting(70, comm="tp"), comms=comms)
        folder = write(tmp_path / "d", late, dump(*calls, comms=comms))
        found = diagnosed(folder)
        assert [(verdict.kind, verdict.ranks[0]) for verdict in found.verdicts] == [("stopped", 1)]
        assert any("compared by torchcomms' number" in line for line in found.missing)
        assert any("after 50 collectives" in line for line in found.missing)

    def test_ranks_that_disagree_after_the_last_settled_call_are_compared(self, tmp_path: Path) -> None:
        comms = {"world": "[0,1]", "tp": "[0,1]"}
        calls = [call(n, comm="tp" if n % 3 else "world") for n in range(50, 70)]
        dumps = [dump(*calls, waiting(70, comm=comm), comms=comms) for comm in comms]
        assert diagnosed(write(tmp_path / "d", *dumps)).verdicts[0].kind == "stopped"

    @pytest.mark.parametrize("why", ["numbers", "messages", "holes", "no calls"])
    def test_else_they_are_left_out(self, tmp_path: Path, why: str) -> None:
        comms = {"world": "[0,1]", "tp": "[0,1]"}
        calls = [call(n, comm="tp" if n % 3 else "world") for n in range(50, 70)]
        other = {
            "numbers": [call(n, comm="tp" if (n + 1) % 3 else "world") for n in range(50, 70)],
            "messages": [*calls, call(70, "send")],
            "holes": [*calls[:4], *calls[6:]],
            "no calls": [],
        }[why]
        folder = write(tmp_path / "d", dump(*calls, waiting(70), comms=comms), dump(*other, comms=comms))
        found = job(folder)
        assert numbers(found, 0) == [] == numbers(found, 1)
        assert any("of group 'tp', 'world' left out: torchcomms does not number" in line for line in found.gaps)
        assert diagnosed(folder).verdicts == ()

    def test_after_a_reset_the_first_calls_are_missing_too(self, tmp_path: Path) -> None:
        """Records are counted from 0 again, the sequence number goes on."""
        again = [call(n, record_id=n - 9) for n in range(9, 12)]
        folder = write(tmp_path / "d", dump(*again), dump(*again))
        assert numbers(job(folder), 0) == [("world", n) for n in (9, 10, 11)]
        assert any("after 9 collectives" in line for line in diagnosed(folder).missing)


@pytest.mark.parametrize(
    "wrong",
    [
        {"collective_seq_id": -1},
        {"duration_ms": "long"},
        {"duration_ms": float("nan")},
        {"retired": 1},
        {"process_group": ("world",)},
        {"state": None},
        {"input_sizes": [[0]] * 8},
    ],
)
def test_a_field_that_is_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]) -> None:
    monkeypatch.setattr(flight_recorder, "MOST_PARTS", 15)
    found = job(write(tmp_path / "d", dump(call(0) | wrong), dump(call(0))))
    assert list(found.logs) == [1] and "entries[0]" in found.damaged[0]


@pytest.mark.parametrize("duration", [1e300, -1.0])
def test_a_duration_that_cannot_be_is_none(tmp_path: Path, duration: float) -> None:
    found = job(write(tmp_path / "d", dump(call(0, duration_ms=duration))))
    assert found.logs[0].collectives[0].duration_ns == 0
    assert any("when 1 call ended is unknown" in line for line in found.gaps)


def test_numbers_that_come_twice(tmp_path: Path) -> None:
    found = job(write(tmp_path / "d", dump(call(0), call(0), call(2**62))))
    assert list(found.logs) == [0] and not found.damaged


def test_dumps_of_c10d_stay_as_they_are(tmp_path: Path) -> None:
    """Also in a group that somebody called after another backend."""
    entries = [call(n, process_group=("7", "gloo"), collective_seq_id=n + 41) for n in range(2)]
    assert numbers(job(write(tmp_path / "d", dump(*entries))), 0) == [("7", 41), ("7", 42)]


def test_open_and_graph_read_them(tmp_path: Path) -> None:
    calls = [call(n, process_group=("world", "gloo"), profiling_name="gloo:all_reduce") for n in range(4)]
    folder = write(tmp_path / "d", dump(*calls), dump(*calls))
    shown = CliRunner().invoke(cli, ["open", str(folder)])
    assert shown.exit_code == 0 and len(shown.output.splitlines()) == 3, shown.output
    graph = CliRunner().invoke(cli, ["graph", "build", str(folder), "--mesh", "dp=2", "-o", str(tmp_path / "g.npz")])
    assert graph.exit_code == 0, graph.output
