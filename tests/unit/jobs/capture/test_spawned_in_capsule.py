"""What multiprocessing gave a rank is in its capsule where a replay needs it: without what is a secret elsewhere, and
searched for what else may be one."""

from __future__ import annotations

import json
import pickle
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from tiny_log import write_training

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.capsule.spawned import FILE
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import NotReplayable
from prismdbg.jobs.capture import capture
from prismdbg.jobs.capture.assemble import Ingredients, assemble
from prismdbg.jobs.capture.secret_search import KNOWN, PAYLOAD_BYTES, SPAWNED, report
from prismdbg.jobs.storage.run_folder import RunFolder

COMMAND = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6, pipe_handle=8)"
ARGUMENT, VARIABLE, SECRET = "q7aB3xaB3xaB3x", "zX9yW8vU7tS6", "mN4bV3cX2zL1k"
RANK = {
    "rank": 0, "world_size": 1, "cwd": "/", "argv": ["train.py", "--token", ARGUMENT],
    "orig_argv": ["python", "-c", COMMAND, "--multiprocessing-fork"], "environment": {"API_KEY": VARIABLE},
    "executable": "/bin/python", "prefix": "/", "base_prefix": "/", "sys_path": [],
    "versions": {"torch": "2.13", "python": "3.13", "prismdbg": "1"},
    "hardware": {"machine": "x86_64", "kernel": "6", "node": "n", "cpus": 1},
}  # fmt: skip
GIVEN = pickle.dumps({"sys_argv": RANK["argv"]}) + pickle.dumps([VARIABLE, {"password": SECRET, "lr": 0.5}])


def rank_folder(tmp_path: Path, given: bytes = GIVEN) -> Path:
    folder = tmp_path / "ranks" / "0"
    write_training(folder, 3)
    (folder / "rank.json").write_text(json.dumps(RANK))
    (folder / FILE).write_bytes(given)
    return folder


def captured(tmp_path: Path, given: bytes = GIVEN, *, log_only: bool = False) -> Capsule:
    incident = Incident(kind=IncidentKind.REQUEST, text="by hand")
    folder, run = rank_folder(tmp_path, given), RunFolder(tmp_path)
    return assemble(
        Ingredients(
            run=run, folder=folder, output=tmp_path / "c", origin=Origin.START, incident=incident, log_only=log_only
        )
    )


def test_variables_and_arguments_are_redacted_in_it_and_stay_pickles(tmp_path: Path) -> None:
    capsule = captured(tmp_path)
    data = (capsule.path / layout.SPAWNED).read_bytes()
    masked = GIVEN.replace(ARGUMENT.encode(), b"*" * len(ARGUMENT)).replace(VARIABLE.encode(), b"*" * len(VARIABLE))
    assert data == masked
    states = {(finding.place, finding.state) for finding in report(capsule).findings}
    assert {("argument --token", "redacted"), ("variable API_KEY", "redacted"), (SPAWNED, "kept")} == states
    assert capsule.rank()["argv"] == ["train.py", "--token", "<redacted>"]


def test_a_value_is_found_in_it_again_where_no_name_is_beside_it(tmp_path: Path) -> None:
    given = pickle.dumps({"password": SECRET}) + pickle.dumps([f"left {SECRET} over"])
    hits = [hit for hit in report(captured(tmp_path, given)).hits if hit.part == layout.SPAWNED]
    assert sorted((given[hit.start : hit.stop].decode(), hit.what == KNOWN) for hit in hits) == [
        (SECRET, False),
        (SECRET, True),
    ]


WORDS = ["swordfish", "opensesame", "pw1x", "p\u00e4ssw\u00f6rd"]
HELD = [*WORDS, "swordfish.py", "a swordfish", b"swordfish", bytearray(b"opensesame"), "x" * 300]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_words_are_redacted_where_they_are_whole_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    command = ["train.py", "--password", "opensesame", "--db-password=pw1x", "--name", "all"]
    environment = {"DB_PASSWORD": WORDS[0], "MY_PASSWORD": WORDS[3], "API_TOKEN": "x" * 300}
    monkeypatch.setattr(sys.modules[__name__], "RANK", RANK | {"argv": command, "environment": environment})
    given = pickle.dumps({"sys_argv": command}, protocol) + pickle.dumps((Path, HELD), protocol)
    path = captured(tmp_path, given).path / layout.SPAWNED
    with path.open("rb") as file:
        first, second = pickle.load(file), pickle.load(file)  # noqa: S301
    assert path.stat().st_size == len(given)
    assert first == {"sys_argv": ["train.py", "--password", "*" * 10, "--db-password=****", "--name", "all"]}
    stars = ["*" * len(word.encode()) for word in WORDS]
    assert second[0] is Path
    assert second[1][:4] == stars
    assert second[1][4:6] == ["swordfish.py", "a swordfish"]
    if protocol > 2:
        assert second[1][6] == b"*" * 9
    assert second[1][7:] == [bytearray(b"*" * 10), "*" * 300]


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_word_that_is_the_name_of_a_function_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.setattr(
        sys.modules[__name__], "RANK", RANK | {"environment": {"DB_PASSWORD": "Fraction", "MY_PASSWORD": "fractions"}}
    )
    given = pickle.dumps([Fraction, "fractions", Fraction(1, 2), Path], protocol)
    kept = (captured(tmp_path, given).path / layout.SPAWNED).read_bytes()
    assert pickle.loads(kept)[0] is Fraction  # noqa: S301


def test_what_else_looks_like_a_secret_is_listed_and_masked_for_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsule = captured(tmp_path)
    assert main.run(["inspect", "--secrets", str(capsule.path)]) == ExitCode.OK
    assert SPAWNED in capsys.readouterr().out
    assert main.run(["pack", "--share", str(capsule.path)]) == 1
    target = tmp_path / "shared.tar.zst"
    assert main.run(["pack", "--share", "--redact", str(capsule.path), "-o", str(target)]) == ExitCode.OK
    assert main.run(["unpack", str(target), "-o", str(tmp_path / "there")]) == ExitCode.OK
    shared = (tmp_path / "there" / layout.SPAWNED).read_bytes()
    assert SECRET.encode() not in shared
    assert len(shared) == len(GIVEN)


def test_large_ones_are_named_as_not_searched(tmp_path: Path) -> None:
    given = GIVEN + pickle.dumps(bytes(PAYLOAD_BYTES))
    assert f"{SPAWNED}: {len(given)} bytes" in report(captured(tmp_path, given)).unsearched


def test_a_log_for_the_eye_alone_lacks_it(tmp_path: Path) -> None:
    with pytest.raises(NotReplayable):
        captured(tmp_path, log_only=True)
    assert layout.SPAWNED not in Capsule.open(tmp_path / "c.evidence").manifest.files


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_rank_that_has_ended_can_be_captured_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    folder = rank_folder(tmp_path)
    monkeypatch.setattr(capture, "kept_from_the_start", lambda _: True)
    if not is_kept:
        (folder / FILE).unlink()
    assert ("--origin start" in capture._after_its_end(RunFolder(tmp_path), folder)) is is_kept
