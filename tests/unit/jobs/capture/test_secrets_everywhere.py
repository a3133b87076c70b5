"""Nothing is shared unsearched: state snapshots and their prologues, paths, groups, pickles that the program read."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from capsules import MANIFEST, RANK, STATE, add_state
from tiny_log import TinyLog

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import add_files
from prismdbg.capsule.manifest import Manifest
from prismdbg.capsule.state_snapshot import DESCRIPTION, PROLOGUE
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.jobs.capture.redaction import Redaction
from prismdbg.jobs.capture.secret_search import report
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.runtime.environment import InstalledFile, of_files

SECRET = "q7" + "aB3x" * 6
TOKEN = "ghp_" + "aB3x" * 9


def _log(folder: Path, value: object = None) -> TinyLog:
    log = TinyLog(folder)
    log.group("0", (0, 1), "default_pg")
    data = pickle.dumps(value)
    log.complete(log.issue(0, 1, op="c10d::broadcast_", outputs=[TensorMeta((len(data),), "uint8")]), data)
    return log


def _capsule(path: Path, manifest: Manifest = MANIFEST, rank: Any = None, files: tuple[Path, ...] = ()) -> Capsule:
    log = _log(path.parent / f"{path.name}-log")
    with CapsuleWriter(path) as writer:
        writer.add_tree(layout.LOG, log.folder)
        add_files(writer, map(str, files))
        writer.add_json(layout.RANK, {**RANK, **(rank or {})})
        return writer.finish(replace(manifest, moment_b=Moment(0, 1)))


def _with_state(path: Path, packed: object, received: object) -> Capsule:
    log = _log(path.parent / f"{path.name}-log")
    before = _log(path.parent / f"{path.name}-before", received)
    with CapsuleWriter(path) as writer:
        writer.add_tree(layout.LOG, log.folder)
        writer.add_json(layout.RANK, {**RANK, "past_records": 0})
        add_state(writer, path.parent / f"{path.name}-state", 0)
        home = writer.folder / layout.STATE
        for segment in before.folder.iterdir():
            name = f"{layout.STATE}/{PROLOGUE}/{segment.name}"
            writer.edit(name, lambda _, segment=segment: segment.read_bytes()) if (
                home / PROLOGUE / segment.name
            ).exists() else writer.add_file(name, segment)
        described = json.loads((home / DESCRIPTION).read_bytes())
        described["objects"]["settings"] = packed
        writer.edit(f"{layout.STATE}/{DESCRIPTION}", lambda _: json.dumps(described).encode())
        return writer.finish(replace(STATE, moment_b=Moment(0, 1)))


def _places(capsule: Capsule) -> set[str]:
    return {finding.place for finding in report(capsule).kept}


@pytest.mark.parametrize(
    "packed",
    [
        ["dict", [["lr", 0.1], ["api_key", SECRET]]],
        ["list", [["dict", [["deep", ["dict", [["password", SECRET]]]]]]]],
        ["dict", [["url", f"https://me:{SECRET}@host"]]],
        f"api_key={SECRET}",
    ],
)
def test_values_of_a_state_snapshot_keep_a_capsule_from_being_shared(
    tmp_path: Path, packed: object, capsys: pytest.CaptureFixture[str]
) -> None:
    capsule = _with_state(tmp_path / "capsule", packed, {"lr": 0.1})
    assert _places(capsule) == {"state snapshot: settings"}
    assert main.run(["pack", "--share", str(capsule.path)]) == 1
    assert main.run(["pack", "--share", "--redact", str(capsule.path)]) == 1  # nothing there can be masked
    said = capsys.readouterr().err
    assert "--redact cannot mask these" in said and SECRET not in said and "prismdbg-masked" not in said


def test_what_was_received_before_the_restore_point_is_searched_and_masked(tmp_path: Path) -> None:
    capsule = _with_state(tmp_path / "capsule", ["dict", []], {"api_key": SECRET})
    assert _places(capsule) == {"payload of 0.1 (broadcast)"}
    assert main.run(["pack", "--share", str(capsule.path)]) == 1
    target = tmp_path / "shared.tar.zst"
    assert main.run(["pack", "--share", "--redact", str(capsule.path), "-o", str(target)]) == ExitCode.OK
    assert main.run(["unpack", str(target), "-o", str(tmp_path / "there")]) == ExitCode.OK
    there = [path for path in (tmp_path / "there").rglob("*") if path.is_file()]
    assert [path for path in there if SECRET.encode() in path.read_bytes()] == []


def test_tensors_of_a_state_snapshot_are_said_to_be_unsearched(tmp_path: Path) -> None:
    capsule = _with_state(tmp_path / "capsule", ["dict", []], None)
    assert report(capsule).unsearched == ("the tensors and bytes of the state snapshot",)


def test_notes_of_the_prologue_are_masked_when_a_capsule_is_made(tmp_path: Path) -> None:
    before = _log(tmp_path / "before")
    before.note("remark", text=f"login with api_key={SECRET}")
    rank = {**RANK, "environment": {}, "orig_argv": [], "argv": []}
    logs = (read_log(_log(tmp_path / "log").folder), read_log(before.folder))
    masked = Redaction.of(rank, (), logs).mask((before.folder / "events.00000.seg").read_bytes())
    assert SECRET.encode() not in masked


def test_paths_and_groups_are_searched_and_no_place_tells_a_value(tmp_path: Path) -> None:
    home = tmp_path / TOKEN
    home.mkdir()
    (home / "settings.yaml").write_text(f"api_key: {SECRET}\n")
    (home / "data.bin").write_bytes(b"\0")
    groups = (replace(MANIFEST.groups[0], desc=f"password={SECRET}"),)
    manifest = replace(MANIFEST, groups=groups)
    capsule = _capsule(
        tmp_path / "capsule",
        manifest,
        {"cwd": str(home), "links": {"/job": str(home), "/data": "/elsewhere"}},
        files=(home / "settings.yaml", home / "data.bin"),
    )
    found = report(capsule)
    shown = f"{tmp_path}/<redacted>"
    assert {f.place for f in found.kept} == {
        f"file {shown}/settings.yaml:1",
        f"path of file {shown}/settings.yaml",
        f"path of file {shown}/data.bin",
        "link /job",
        "working directory",
        "description of group 0",
    }
    told = [f"{finding.place} {finding.what}" for finding in found.findings] + list(found.unsearched)
    assert [text for text in told if TOKEN in text or SECRET in text] == []


@pytest.mark.parametrize("kind", ["built", "file", "folder", "listed", "made", "ran"])
def test_paths_that_only_the_log_has_are_searched(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _log(tmp_path / "log")
    log.note(kind, path=f"/tmp/cache-{TOKEN}/x", moment="0.1")
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_tree(layout.LOG, log.folder)
        writer.add_json(layout.RANK, RANK)
        capsule = writer.finish(replace(MANIFEST, moment_b=Moment(0, 1)))
    assert _places(capsule) == {"path /tmp/cache-<redacted>/x"}
    assert main.run(["pack", "--share", str(capsule.path)]) == 1
    assert TOKEN not in capsys.readouterr().err


@pytest.mark.parametrize("key", ["absent", "changed", "folders", "gone", "listed", "sys_path"])
def test_every_list_of_paths_is_searched(tmp_path: Path, key: str) -> None:
    path = f"/tmp/cache-{TOKEN}/x"
    of = "path of file" if key == "listed" else "path"
    capsule = _capsule(
        tmp_path / "capsule", rank={key: [path, "/tmp/x"], "gone": ["/tmp/y"] if key != "gone" else [path]}
    )
    assert _places(capsule) == {f"{of} /tmp/cache-<redacted>/x"}


@pytest.mark.parametrize("at", ["folder", "name", "target"])
def test_paths_of_installed_files_are_searched(tmp_path: Path, at: str) -> None:
    words = {"folder": "lib", "name": "a.so", "target": "b.so"} | {at: TOKEN}
    link = InstalledFile(path=f"/opt/{words['folder']}/{words['name']}", mode=0o777, target=words["target"])
    plain = InstalledFile(path="/opt/lib/plain.so", mode=0o777, target="other.so")
    log = _log(tmp_path / "log")
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_tree(layout.LOG, log.folder)
        writer.add_json(layout.RANK, RANK)
        writer.add_json(layout.ENVIRONMENT, of_files([link, plain]).to_json())
        capsule = writer.finish(replace(MANIFEST, moment_b=Moment(0, 1)))
    assert _places(capsule) == {f"path of installed file {link.path.replace(TOKEN, '<redacted>')}"}


def test_a_pickle_that_the_program_read_is_searched(tmp_path: Path) -> None:
    plain, saved = tmp_path / "settings.pkl", tmp_path / "checkpoint.pt"
    plain.write_bytes(pickle.dumps({"pad": b"\0", "api_key": SECRET}))
    torch.save({"weight": torch.zeros(2), "password": SECRET}, saved)
    found = report(_capsule(tmp_path / "capsule", files=(plain, saved)))
    assert {f.place.rpartition(":")[0] for f in found.kept} == {f"file {plain}", f"file {saved}"}
    assert {hit.stop - hit.start for hit in found.hits} == {len(SECRET)}
