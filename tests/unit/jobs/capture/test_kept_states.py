"""The state snapshots that a run keeps: which one a capsule starts at, and that a live rank cannot take it away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from capsules import STATE, make_capsule

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture import states
from prismdbg.jobs.capture.states import add_state, list_states, pinned
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.moment import Moment


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run whose rank 0 keeps two snapshots, and has begun a third."""
    run = RunFolder(tmp_path / "run")
    state = make_capsule(tmp_path / "capsule", STATE).path / layout.STATE
    home = run.states / "0"
    for name in ("8", "4", ".12.partial"):
        shutil.copytree(state, home / name, ignore=shutil.ignore_patterns("prologue"))
        described = home / name / "state.json"
        described.write_text(described.read_text().replace('"moment":"0.0"', f'"moment":"{name.strip(".")}.2"'))
    shutil.copytree(state / "prologue", home / "prologue")
    folder = run.ranks / "0"
    folder.mkdir(parents=True)
    for name in ("events.00000.seg", "payload.00000.seg", "payload.spare", "rank.json"):
        (folder / name).write_text(name)
    (folder / "memory").symlink_to(tmp_path)
    return run


def test_whole_snapshots_are_listed_oldest_first(run: RunFolder) -> None:
    assert [state.moment for state in list_states(run, run.ranks / "0")] == [Moment(4, 2), Moment(8, 2)]
    assert list_states(run, run.ranks / "1") == []


def test_a_damaged_snapshot_is_an_error_and_one_that_goes_is_none(run: RunFolder) -> None:
    described = run.states / "0" / "8" / "state.json"
    described.write_text("{")
    with pytest.raises(CapsuleError, match="is not JSON"):
        list_states(run, run.ranks / "0")
    shutil.rmtree(described.parent)
    (run.states / "0" / "8").symlink_to("gone")  # as it is listed, and then dropped
    assert [state.moment.step for state in list_states(run, run.ranks / "0")] == [4]


def test_a_replay_goes_through_a_whole_step(run: RunFolder) -> None:
    first = list_states(run, run.ranks / "0")[0]
    assert first.leads_to(5) and not first.leads_to(4)


def test_a_prologue_holds_what_its_collectives_received_and_zeros(run: RunFolder, tmp_path: Path) -> None:
    """The rank goes on to write to the last segment."""
    state = list_states(run, run.ranks / "0")[0].path
    segment = state.parent / "prologue" / "payload.00000.seg"
    received = segment.read_bytes()
    segment.write_bytes(received + b"later" * 1000)
    with CapsuleWriter(tmp_path / "new") as writer:
        log = add_state(writer, state)
        assert len(log.collectives) == 2 and any(received)
        held = (writer.folder / layout.STATE / "prologue" / segment.name).read_bytes()
    assert held == received + bytes(5000)


def test_what_is_pinned_outlives_what_the_rank_drops(run: RunFolder) -> None:
    folder = run.ranks / "0"
    with pinned(run, folder, list_states(run, folder)[0]) as (log, state):
        shutil.rmtree(run.states)
        shutil.rmtree(folder)
        assert {path.name for path in log.iterdir()} == {"events.00000.seg", "payload.00000.seg", "rank.json", "memory"}
        assert log.name == "0" and (log / "rank.json").read_text() == "rank.json"
        assert sorted(path.name for path in state.iterdir()) == ["state.json", "tensors.safetensors"]
        assert [path.suffix for path in (state.parent / "prologue").iterdir()] == [".seg"] * 2
    assert not list(run.path.glob(".pinned*")), "nothing is left"


def test_a_file_system_without_second_names(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    folder = run.ranks / "0"
    state = list_states(run, folder)[0]
    with pinned(run, folder, state) as found:
        assert found == (folder, state.path)


def once_while_linking(monkeypatch: pytest.MonkeyPatch, name: str, happens: Callable[[], object]) -> None:
    """Before the file of this name is given its second one."""
    link, left = Path.hardlink_to, [happens]

    def hardlink_to(self: Path, target: Path) -> None:
        if Path(target).name == name and left:
            left.pop()()
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", hardlink_to)


def test_a_log_that_is_shortened_meanwhile_is_linked_as_it_is_then(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first segment has been replaced by what its successors' rest refers to: both are of the same time."""
    folder = run.ranks / "0"
    (folder / "events.00001.seg").write_text("1")
    (folder / "events.00002.seg").write_text("2")

    def fold() -> None:
        (folder / "preface").write_text("of 0 and 1")
        (folder / "preface").rename(folder / "events.00000.seg")
        (folder / "events.00001.seg").unlink()

    once_while_linking(monkeypatch, "events.00001.seg", fold)
    with pinned(run, folder, list_states(run, folder)[0]) as (log, _):
        assert log != folder
        assert {path.name: path.read_text() for path in log.glob("events.*")} == {
            "events.00000.seg": "of 0 and 1",
            "events.00002.seg": "2",
        }


def test_payloads_that_the_rank_drops_meanwhile_are_left_out(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run.ranks / "0"
    (folder / ".rank.json.partial").write_text("it is being written")
    received = folder / "payload.00000.seg"
    once_while_linking(monkeypatch, received.name, lambda: received.rename(folder / "payload.1.spare"))
    with pinned(run, folder, list_states(run, folder)[0]) as (log, _):
        assert {path.name for path in log.iterdir()} == {"events.00000.seg", "rank.json", "memory"}


def test_a_snapshot_that_the_rank_drops_meanwhile_is_chosen_again(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, home = run.ranks / "0", run.states / "0"
    once_while_linking(monkeypatch, "state.json", lambda: (home / "4").rename(home / ".4.partial"))

    def capture() -> str:
        with pinned(run, folder, list_states(run, folder)[0]) as (_, state):
            return state.name

    with pytest.raises(states.StateGone, match="dropped the state snapshot of step 4"):
        capture()
    (home / ".4.partial").rename(home / "4")
    once_while_linking(monkeypatch, "state.json", lambda: (home / "4").rename(home / ".4.partial"))
    assert states.while_dropped(capture) == "8"
