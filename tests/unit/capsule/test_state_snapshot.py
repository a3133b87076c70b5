"""The description of a state snapshot, and the folder in which a rank keeps its snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prismdbg.capsule.safetensors import header_of, lay
from prismdbg.capsule.state_snapshot import DESCRIPTION, TENSORS, StateSnapshot, require_whole
from prismdbg.errors import CapsuleError
from prismdbg.model.moment import Moment
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.recording.state_snapshots import keep_prologue
from prismdbg.settings.state_folders import states_of

SNAPSHOT = StateSnapshot(
    moment=Moment(50, 3),
    past_records=412,
    prologue_records=17,
    by_hand=False,
    sequences=(("0", "", -1, 0, 400), ("0", "send", 1, 7, 12)),
    objects={"model": ["dict", []]},
    random={"torch": "00"},
    random_at_forward=None,
    buckets=(((2, 1), (0,)),),
)


def written(folder: Path, **changed: Any) -> Path:
    data = json.loads(SNAPSHOT.to_bytes()) | changed
    (folder / DESCRIPTION).write_text(json.dumps({k: v for k, v in data.items() if v is not ...}))
    (folder / TENSORS).write_bytes(header_of(lay([("t", "F32", (2,))])) + bytes(8))
    return folder


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    (tmp_path / DESCRIPTION).write_bytes(SNAPSHOT.to_bytes())
    assert StateSnapshot.read(tmp_path) == SNAPSHOT
    assert require_whole(written(tmp_path)) == SNAPSHOT and SNAPSHOT.step == 50


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format": 2}, "format is 2; this version reads 1"),
        ({"moment": 50}, "moment must be a string"),
        ({"past_records": -1}, "past_records is -1"),
        ({"past_records": 3}, "prologue_records is 17, more than past_records"),
        ({"by_hand": 1}, "by_hand must be true or false"),
        ({"sequences": [["0", "", -1, 0]]}, "sequences must contain only"),
        ({"sequences": [["0", "", -1, 0, True]]}, "sequences must contain only"),
        ({"sequences": {}}, "sequences must be a list"),
        ({"objects": []}, "objects must be an object"),
        ({"objects": ...}, "objects is missing"),
        ({"buckets": [[1]]}, "buckets must contain lists of lists"),
        ({"buckets": [[[-1]]]}, "buckets must contain only whole numbers"),
    ],
)
def test_what_is_altered_is_named(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(CapsuleError, match=says):
        StateSnapshot.read(written(tmp_path, **changed))


def test_tensors_that_are_cut_or_missing_are_refused(tmp_path: Path) -> None:
    tensors = written(tmp_path) / TENSORS
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(CapsuleError, match="holds 7 bytes of tensors"):
        require_whole(tmp_path)
    tensors.unlink()
    with pytest.raises(CapsuleError, match="cannot be read"):
        require_whole(tmp_path)
    tensors.symlink_to("/etc/passwd")
    with pytest.raises(CapsuleError, match="cannot be read"):
        require_whole(tmp_path)


def test_only_whole_snapshots_count(tmp_path: Path) -> None:
    for name in ("100", "50", ".150.partial", "prologue"):
        (tmp_path / name).mkdir()
    assert states_of(tmp_path) == [50, 100]
    assert states_of(tmp_path / "none") == []


def test_counters_go_on_from_a_snapshot() -> None:
    counters = Counters()
    counters.resume_at(SNAPSHOT.moment, SNAPSHOT.past_records, SNAPSHOT.sequences)
    assert (counters.moment, counters.record_id) == (Moment(50, 3), 412)
    assert sorted(counters.sequences()) == sorted(SNAPSHOT.sequences)


def test_the_prologue_outlives_the_files_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    for name in ("events.00000.seg", "payload.00000.seg", "rank.json"):
        (log / name).write_text(name)
    keep_prologue(log, tmp_path / "prologue")
    for path in log.iterdir():
        path.unlink()
    kept = {path.name: path.read_text() for path in (tmp_path / "prologue").iterdir()}
    assert kept == {name: name for name in ("events.00000.seg", "payload.00000.seg")}
