"""--rank of a RUN: which capsule that is, and what is said where there is none."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from capsules import MANIFEST, make_capsule
from incident_run import write_run
from tiny_log import FLOATS, TinyLog, write_training

from prismdbg.capsule import capsule_dir
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.coverage import StartPoint, replayable_from, span_of
from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError, NotReplayable, RankLost, UsageError
from prismdbg.job_graph.job_view import is_job
from prismdbg.jobs import rank_capsule
from prismdbg.jobs.capture.assemble import Ingredients, assemble, kept_from_the_start
from prismdbg.jobs.evidence import gather
from prismdbg.jobs.rank_capsule import capsule_of, changed_since, incident_of, shown_capsule_of
from prismdbg.jobs.storage.classes_file import write_classes
from prismdbg.jobs.storage.emulated_run import EmulatedRun, read_emulated
from prismdbg.jobs.storage.inventory import describe, disk_bytes
from prismdbg.jobs.storage.pack import pack, read_manifest
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.jobs.storage.run_report import report
from prismdbg.model import synthesis
from prismdbg.model.moment import Moment
from prismdbg.model.sizes import size
from prismdbg.runtime.environment import Environment
from prismdbg.simulate.graph.class_finder import FoundClass, RankClasses
from prismdbg.simulate.graph.kinds import Kinds
from prismdbg.simulate.graph.mesh import Mesh

MESH = Mesh.parse("pp=4,dp=8")
EMULATED = {"world": 32, "mesh": {"pp": 4, "dp": 8}, "steps": 3, "peers": ["dp:=zeros"], "seed": 5}


def run_folder(path: Path, *ranks: int, **more: Any) -> RunFolder:
    """A run of which these ranks left a log."""
    for rank in ranks:
        write_training(path / "ranks" / str(rank), rank=rank).note("exit", code=0)
        described = {"pid": 2**30, "started_ticks": 1, "argv": ["train.py"], "cwd": str(path), "world_size": 2}
        (path / "ranks" / str(rank) / "rank.json").write_text(json.dumps(described))
    path.mkdir(exist_ok=True)
    (path / "run.json").write_text(json.dumps({"command": ["python", "train.py"], "started_wall_ns": 1, **more}))
    return RunFolder(path)


def emulated(path: Path, *ranks: int) -> EmulatedRun:
    found = read_emulated(run_folder(path, *ranks, emulated=EMULATED))
    assert found is not None
    return found


def of(path: Path, rank: int | None) -> Path:
    return capsule_of(path, rank, lambda _: None)


def test_a_capsule_is_itself_and_has_one_rank(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule").path
    assert of(capsule, None) == capsule
    with pytest.raises(UsageError, match="--rank selects"):
        of(capsule, 0)


def test_of_a_recorded_run_it_is_the_newest_capsule_of_the_rank(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", 0)
    for name, rank, made in (("old", 0, 1), ("new", 0, 3), ("other", 1, 9)):
        make_capsule(run.capsules / name, replace(MANIFEST, rank=rank, created_ns=made))
    (run.capsules / "old.output").write_text("printed")
    assert of(run.path, 0) == run.capsules / "new"
    with pytest.raises(UsageError, match="more than one rank") as caught:
        of(run.path, None)
    assert caught.value.hint.endswith("0, 1")


def test_a_capsule_comes_before_what_was_packed_of_it(tmp_path: Path) -> None:
    """Its notes and breakpoints lie beside the folder, and `why` knows its run there."""
    run = run_folder(tmp_path / "run", 0)
    capsule = make_capsule(run.capsules / "one", replace(MANIFEST, rank=0))
    pack(capsule.path, run.capsules / "one.tar.zst")
    assert of(run.path, 0) == run.capsules / "one"


def test_a_place_that_is_not_there_is_no_question_of_ranks(tmp_path: Path) -> None:
    assert of(tmp_path / "nowhere", 1) == tmp_path / "nowhere", "whoever opens it says so"


def test_a_run_names_all_ranks_that_can_be_replayed(tmp_path: Path) -> None:
    """Rank 0 has no capsule, but one can be made; of rank 3 too little was kept."""
    run = run_folder(tmp_path / "run", 0, 1, 2, 3)
    for rank in (1, 2):
        make_capsule(run.capsules / str(rank), replace(MANIFEST, rank=rank, world_size=4))
    (run.ranks / "3" / fmt.payload_segment(0)).unlink()
    with pytest.raises(UsageError, match="more than one rank") as caught:
        of(run.path, None)
    assert caught.value.hint == "choose one with --rank: 0, 1, 2"
    with pytest.raises(UsageError, match="more than one rank") as caught:
        shown_capsule_of(run.path, None, lambda _: None)
    assert caught.value.hint == "choose one with --rank: 0, 1, 2, 3"


def test_a_run_of_many_ranks_names_some(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", *range(14))
    with pytest.raises(UsageError) as caught:
        of(run.path, None)
    assert caught.value.hint == "choose one with --rank: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ..."


def test_an_emulated_run_without_a_graph_of_all_ranks_opens_as_the_ranks_that_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = emulated(tmp_path / "run", 0, 9).run
    assert main.run(["open", str(run.path)]) == ExitCode.OK
    said = capsys.readouterr()
    assert [line.split("\t")[0] for line in said.out.splitlines()] == ["rank", "0", "9"]
    assert "cannot build a graph of all ranks from the logs: " in said.err
    assert "prismdbg graph build" in said.err and "--rank" not in said.err


def test_a_cluster_that_was_asked_for_is_not_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = emulated(tmp_path / "run", 0, 9).run
    assert main.run(["open", str(run.path), "--cluster", str(tmp_path / "c.yaml")]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert not said.out and "try: emulate with --classes" in said.err and "--rank" not in said.err


def test_that_a_capsule_is_created_is_said_before_and_then_how_large_it_is(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_training(run.ranks / "0")
    said: list[tuple[str, bool]] = []
    path = capsule_of(run.path, 0, lambda text: said.append((text, run.capsules.exists())))
    assert said == [
        (f"rank 0 has no capsule yet: creating one in {run.capsules}", False),
        (f"rank 0: {path}, {size(disk_bytes(path))} (`prismdbg rm` removes it)", True),
    ]
    item = describe(path)
    assert item is not None and item.size_bytes == disk_bytes(path), "as `list` has it"


def test_of_what_was_not_kept_it_says_how_to_keep_it(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", 0)
    (run.ranks / "0" / fmt.payload_segment(0)).unlink()
    with pytest.raises(RankLost, match="too little data") as caught:
        of(run.path, 0)
    assert "--checkpoint-every" in caught.value.hint
    with pytest.raises(UsageError, match="no data of rank 5"):
        of(run.path, 5)


def test_a_rank_that_did_not_run_is_said_to_and_how_it_would(tmp_path: Path) -> None:
    world = emulated(tmp_path / "run", 0)
    with pytest.raises(UsageError, match=r"rank 9 \(pp=1 dp=1\) did not run, only 0 did") as caught:
        world.require_ran(9)
    command = "prismdbg emulate -o NEW --world 32 --mesh pp=4,dp=8 --ranks 9 --steps 3 --seed 5 --peers dp:=zeros"
    assert caught.value.hint == f"run it: {command} -- python train.py"
    with pytest.raises(UsageError, match="rank 32"):
        of(tmp_path / "run", 32)


def without_payloads(path: Path) -> RunFolder:
    """An emulated rank of which nothing was kept that it received."""
    run = with_payloads(path)
    (run.ranks / "0" / fmt.payload_segment(0)).unlink()
    return run


def with_payloads(path: Path) -> RunFolder:
    (script := path.parent / "train.py").write_text("print()")
    run = emulated(path, 0).run
    described = {"environment": {}, "versions": {}, "hardware": {}, "orig_argv": ["python", str(script)], "rank": 0}
    file = run.ranks / "0" / "rank.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **described}))
    write_json(run.environment, Environment(()).to_json())
    return run


def test_an_emulated_rank_without_the_data_that_it_received_is_shown_and_not_made_again(tmp_path: Path) -> None:
    run, said = without_payloads(tmp_path / "run"), list[str]()
    for _ in range(2):
        with pytest.raises(NotReplayable, match="rank 0 is not replayable: no received data was kept") as caught:
            of(run.path, 0)
        assert "prismdbg emulate -o NEW" in caught.value.hint and "--window-bytes" in caught.value.hint
        assert "--checkpoint-every" not in caught.value.hint, "emulate has no such option"
        assert shown_capsule_of(run.path, 0, said.append) == caught.value.evidence
    assert said[-1].startswith("rank 0, its log, not replayable: no received data was kept: ")
    assert [path.name for path in run.capsules.iterdir()] == ["emulated-rank0.evidence"]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What another process does while a capsule is written; each once."""
    others: list[Callable[[], object]] = []

    def slow(parts: Ingredients) -> Capsule:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(capsule_dir, "sync_tree", lambda _: [others.pop()() for _ in others[:1]])
            return assemble(parts)

    monkeypatch.setattr(rank_capsule, "assemble", slow)
    return others


def test_a_rank_that_two_open_at_once_has_one_capsule(tmp_path: Path, meanwhile: list[Callable[[], object]]) -> None:
    run, theirs = with_payloads(tmp_path / "run"), list[Path]()
    meanwhile.append(lambda: theirs.append(of(run.path, 0)))
    assert [of(run.path, 0)] == theirs == list(run.capsules.iterdir())
    assert theirs[0].name == "emulated-rank0" and not read_manifest(theirs[0]).not_replayable


def test_a_rank_without_its_data_that_two_open_at_once_has_one_folder_of_evidence(
    tmp_path: Path, meanwhile: list[Callable[[], object]]
) -> None:
    run, theirs = without_payloads(tmp_path / "run"), list[Path]()
    meanwhile.append(lambda: theirs.append(shown_capsule_of(run.path, 0, lambda _: None)))
    assert [shown_capsule_of(run.path, 0, lambda _: None)] == theirs == list(run.capsules.iterdir())
    assert theirs[0].name == "emulated-rank0.evidence"


def test_evidence_never_has_the_name_of_a_capsule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = without_payloads(tmp_path / "run"), list[str]()
    monkeypatch.setattr(capsule_dir, "sync", lambda path: seen.extend(map(str, path.glob("emulated*"))))
    shown_capsule_of(run.path, 0, lambda _: None)
    assert seen == [str(run.capsules / "emulated-rank0.evidence")]


def test_an_emulated_rank_whose_program_was_changed_is_shown(tmp_path: Path) -> None:
    run, said = without_payloads(tmp_path / "run"), list[str]()
    os.utime(tmp_path / "train.py", ns=(0, 10 * (run.ranks / "0" / "rank.json").stat().st_mtime_ns))
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1), "default_pg")
    log.note("file", path=str(tmp_path / "train.py"))
    log.complete(log.issue(0, 1))
    with pytest.raises(CapsuleError, match="was changed after rank 0 ran"):
        of(run.path, 0)
    assert shown_capsule_of(run.path, 0, said.append).name == "log-rank0.evidence"
    assert "was changed after rank 0 ran" in said[1]


def test_who_ran_for_its_class_is_named(tmp_path: Path) -> None:
    world = emulated(tmp_path / "run", 0, 8)
    kinds = Kinds(mesh=MESH, begins={"pp": (0, 1, 3), "dp": (0,)})
    classes = (
        FoundClass(bases=(0, 24), ranks=16, checked_with=()),
        FoundClass(bases=(8,), ranks=16, checked_with=()),
    )
    write_classes(world.run, RankClasses(kinds=kinds, probed=("pp",), classes=classes, ran=(0, 8)))
    with pytest.raises(UsageError, match=r"rank 8 \(pp=1 dp=0\) ran for its class") as caught:
        world.require_ran(17)
    assert caught.value.hint.startswith("give --rank 8, or run this one: ")
    standing = world.standing_in()
    assert standing is not None and standing.reshape(4, 8)[:, 3].tolist() == [0, 8, 8, 0]


def test_what_a_run_with_emulated_ranks_says_of_itself(tmp_path: Path) -> None:
    run = emulated(tmp_path / "run", 0, 9).run
    lines = report(run.path)
    assert (
        lines[-3]
        == "emulated: 2 of 32 ranks of pp=4,dp=8 (0, 9), each among virtual peers; the peers' data was synthesized"
    )
    assert f"prismdbg debug {run.path} --rank 0" in lines[-2]
    assert "--classes" in lines[-1] and "--alike" in lines[-1]  # nothing stands for the other 30
    assert not any("supervisor" in line for line in lines)
    item = describe(run.path)
    assert item is not None and item.text == "emulated, 2 of 32 ranks: python train.py"
    evidence = gather(run.path)
    assert evidence.emulated == "pp=4,dp=8" and evidence.gaps == () and evidence.asked_only == ()
    assert is_job(run.path) and not is_job(run_folder(tmp_path / "recorded", 0).path)


def test_which_ranks_ran_and_how_their_peers_came_is_in_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = emulated(tmp_path / "run", 0, 9, 31).run
    ranks = [{"rank": 9, "simulated_ns": 90, "emulated_ns": 100, "components": {}}]
    write_json(
        run.path / "passes.json",
        {"clock": "wall", "until": 0.01, "has_converged": False, "passes": [{"number": 1, "ranks": ranks}]},
    )
    assert main.run(["status", str(run.path), "--json"]) == ExitCode.OK
    said = json.loads(capsys.readouterr().out)["emulated"]
    assert (said["world"], said["ran"], said["classes"]) == (32, [0, 9, 31], None)
    assert (said["paced"]["clock"], said["paced"]["has_converged"]) == ("wall", False)
    assert [error["worst"] for error in said["paced"]["errors"]] == [pytest.approx(-0.1)]

    lines = report(run.path)
    assert any("have not converged: after 1 pass rank 9's iteration, simulated less" in line for line in lines)
    assert any(line.startswith("not reliable: the duration of a step closer than 10.00%") for line in lines)


def test_a_graph_of_all_ranks_is_proposed_only_where_one_can_be_made(tmp_path: Path) -> None:
    world = emulated(tmp_path / "run", 0, 8)
    kinds = Kinds(mesh=MESH, begins={"pp": (0, 1), "dp": (0,)})
    classes = tuple(FoundClass(bases=(base,), ranks=16, checked_with=()) for base in (0, 8))
    write_classes(world.run, RankClasses(kinds=kinds, probed=("pp",), classes=classes, ran=(0, 8)))
    run = world.run.path
    assert report(run)[-1] == f"next: prismdbg debug {run} --rank 0; all ranks: prismdbg graph build {run}"
    TinyLog(run / "ranks" / "8.1", 8).note("exit", code=7)
    (run / "ranks" / "8.1" / "rank.json").write_text((run / "ranks" / "8" / "rank.json").read_text())
    assert report(run)[-2].startswith("rank 8.1 failed at 0.0: ")
    assert report(run)[-1] == f"next: prismdbg debug {run} --rank 8"


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", emulated={"mesh": "pp=4"})
    with pytest.raises(CapsuleError, match=r"run\.json: emulated: world is missing"):
        read_emulated(run)


def test_a_file_that_changed_since_is_found(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", 0)
    folder, script = run.ranks / "0", tmp_path / "run" / "train.py"
    script.write_text("print()")
    os.utime(script, ns=(0, 0))
    log = read_log(folder)
    assert changed_since(log, folder) == ""
    os.utime(script, ns=(0, 10 * (folder / "rank.json").stat().st_mtime_ns))
    assert changed_since(log, folder) == str(script)


def test_the_incident_is_what_ended_the_program(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    assert incident_of(read_log(tmp_path), "rank 0").kind is IncidentKind.REQUEST
    log.note("incident", incident="oom", type="OutOfMemoryError", text="no room", moment="1.2")
    found = incident_of(read_log(tmp_path), "rank 0")
    assert (found.kind, found.text, str(found.moment)) == (
        IncidentKind.OUT_OF_MEMORY,
        "OutOfMemoryError: no room",
        "1.2",
    )


def test_what_can_be_made_up_again_needs_no_payload(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.group("0", (0, 1), "default_pg")
    for collective, way in enumerate((synthesis.ECHO, synthesis.DONOR, synthesis.NOISE), 1):
        payload = bytes(16) if way == synthesis.DONOR else None
        log.complete(log.issue(0, collective), payload, flags=fmt.CompleteFlag.SYNTHESIZED, made=synthesis.NUMBERS[way])
    read = read_log(tmp_path)
    assert [c.made for c in read.collectives] == ["echo", "donor", "noise"]
    assert kept_from_the_start(tmp_path)
    span = span_of(read, StartPoint(), None)
    assert str(replayable_from(read, span, Moment(0), lambda ref: ref.segment == 0)) == "0.1"
    assert str(replayable_from(read, span, Moment(0), lambda _: False)) == "0.3"


@pytest.mark.parametrize("first", [0, 1])
def test_what_was_kept_from_the_start_is_seen_in_the_first_segment_that_needs_it(tmp_path: Path, first: int) -> None:
    log = TinyLog(tmp_path)
    log.group("0", (0, 1), "default_pg")
    for segment in range(3):
        log.complete(log.issue(0, segment + 1), bytes(16) if segment >= first else None)
        log.next_segment()
    assert kept_from_the_start(tmp_path) is (first == 0)
    (tmp_path / fmt.event_segment(1)).unlink()
    assert not kept_from_the_start(tmp_path)


SMALL, LARGE = 0, 1  # payload segments of before a restore point


@pytest.mark.parametrize(
    ("large", "is_there", "kept"), [(True, True, True), (True, False, False), (False, True, False), (None, True, True)]
)
def test_small_payloads_of_before_a_restore_point_do_not_tell_for_larger_ones(
    tmp_path: Path, large: bool | None, is_there: bool, kept: bool
) -> None:
    """They outlive them. large: whether the larger one has a payload, None where it received nothing."""
    log = TinyLog(tmp_path)
    log.group("0", (0, 1), "default_pg")
    for nth, segment in enumerate([SMALL, LARGE, SMALL], 1):
        received_nothing = segment == LARGE and large is None
        record = log.issue(0, nth, outputs=() if received_nothing else (FLOATS,))
        flags = fmt.CompleteFlag.PAYLOAD if segment == SMALL or large else 0
        body = fmt.COMPLETE.pack(record, 3000, 0, 16, segment, -1, fmt.Status.OK, flags, 0, 0)
        log.append(fmt.Kind.COMPLETE, body)
    for segment in (SMALL, LARGE) if is_there else (SMALL,):
        (tmp_path / fmt.payload_segment(segment)).touch()
    assert kept_from_the_start(tmp_path) is kept


MADE = {"flags": fmt.CompleteFlag.SYNTHESIZED, "op": "allreduce_"}
FROM_A_DONOR, ECHOED = ({**MADE, "made": synthesis.NUMBERS[way]} for way in (synthesis.DONOR, synthesis.ECHO))


@pytest.mark.parametrize(
    ("needs", "needs_none"),
    [
        ({"op": "allgather_", "root": 0}, {"op": "broadcast_", "root": 0}),
        ({"op": "broadcast_", "root": 1}, {"op": "broadcast_", "root": 0}),
        ({}, {"group": "unknown"}),
        ({}, {"outputs": ()}),
        ({}, {"status": fmt.Status.FAILED}),
        ({}, {"is_open": True}),
        (FROM_A_DONOR, ECHOED),
    ],
    ids=["op", "root", "group", "tensors", "failed", "open", "synthesized"],
)
def test_one_that_needs_no_payload_does_not_tell_for_one_that_does(
    tmp_path: Path, needs: dict[str, Any], needs_none: dict[str, Any]
) -> None:
    """Of those that are alike one is looked at; these are alike in all else."""
    for order in ((needs, needs_none), (needs_none, needs)):
        log = TinyLog(tmp_path / str(order.index(needs)))
        log.group("0", (0, 1), "default_pg")
        for nth, given in enumerate(order, 1):
            issued = {key: given[key] for key in ("op", "root", "group", "outputs") if key in given}
            ended = {key: given[key] for key in ("status", "flags", "made") if key in given}
            record = log.issue(0, nth, **issued)
            if not given.get("is_open"):
                log.complete(record, **ended)
        assert not kept_from_the_start(log.folder)


def test_a_log_without_its_first_collective_or_without_any_has_nothing_from_the_start(tmp_path: Path) -> None:
    """A collective that was not written, as on a full disk, leaves a gap in the numbers."""
    log = TinyLog(tmp_path)
    log.group("0", (0, 1), "default_pg")
    assert not kept_from_the_start(tmp_path)
    log.records = 1
    log.complete(log.issue(0, 2), bytes(16))
    assert not kept_from_the_start(tmp_path)
