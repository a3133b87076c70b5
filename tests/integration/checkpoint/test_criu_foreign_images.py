"""Images that pass every check here, and that CRIU itself refuses: the capsule is at fault, not this machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from chain import Taken, prismdbg

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.checkpoint import image_check
from prismdbg.errors import FacilityError
from prismdbg.jobs.replay.replay import ReplayRequest, open_replay

pytestmark = [pytest.mark.criu, pytest.mark.job]


def replace_file(capsule: Path, path: Path, data: bytes) -> None:
    """In a capsule of hard links, and in its manifest."""
    manifest = capsule / layout.MANIFEST
    fields = json.loads(manifest.read_bytes())
    entry = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    fields["files"][path.relative_to(capsule).as_posix()] = entry
    for file, new in ((path, data), (manifest, json.dumps(fields).encode())):
        file.unlink()
        file.write_bytes(new)


def test_what_criu_names_as_the_cause_is_exit_code_3(nan_with_checkpoints: Taken, tmp_path: Path) -> None:
    from tests.fuzz.process_image import packed, parsed

    capsule = shutil.copytree(nan_with_checkpoints.capsule, tmp_path / "capsule", copy_function=os.link)
    # a thread has none, and may have a lower number than its process once the kernel has begun again with low ones
    cores = {path: parsed(path.read_bytes()) for path in (capsule / layout.CHECKPOINT).glob("core-*.img")}
    ((main_core, magic, entry),) = [(path, magic, entry) for path, (magic, (entry,)) in cores.items() if "tc" in entry]
    del entry["tc"]
    replace_file(capsule, main_core, packed(magic, [entry]))
    assert prismdbg("verify", capsule).code == 0
    said = prismdbg("replay", capsule, "--runtime", "local")
    assert said.code == 3, said
    assert "error: the checkpoint is not one that criu can restore: Core task state data missed" in said.err
    assert "Traceback" not in said.err


def with_open(capsule: Path, target: Path, name: str) -> Path:
    """A copy whose images say that the rank has a folder of this name open."""
    from tests.fuzz.process_image import packed, parsed

    copy = shutil.copytree(capsule, target, copy_function=os.link)
    files = copy / layout.CHECKPOINT / "files.img"
    magic, entries = parsed(files.read_bytes())
    owner = next(entry["reg"]["fown"] for entry in entries if "reg" in entry)
    folder = {"id": 5000, "name": name, "flags": os.O_DIRECTORY, "pos": 0, "mode": 0o40700, "fown": owner}
    replace_file(copy, files, packed(magic, [*entries, {"type": "REG", "id": 5000, "reg": folder}]))
    table = min((copy / layout.CHECKPOINT).glob("fdinfo-*.img"))
    magic, entries = parsed(table.read_bytes())
    replace_file(copy, table, packed(magic, [*entries, {"id": 5000, "flags": 0, "type": "REG", "fd": 77}]))
    return copy


@pytest.mark.parametrize("name", ["/./proc/1/fd/8", "/./proc/1/fd/9", "/tmp/../proc/1/fd/9"])
def test_a_name_that_leads_to_what_the_starter_has_open_is_refused(
    nan_with_checkpoints: Taken, tmp_path: Path, name: str
) -> None:
    """CRIU would open it with its own rights: the folder of its own programs, which are run outside later."""
    capsule = with_open(nan_with_checkpoints.capsule, tmp_path / "capsule", name)
    for said in (prismdbg("verify", capsule), prismdbg("replay", capsule, "--runtime", "local")):
        assert said.code == 3, said
        assert f"names the file '{name}'" in said.out + said.err


def test_a_lease_is_refused(nan_with_checkpoints: Taken, tmp_path: Path) -> None:
    """By it the rank would delay every program of this machine that writes the file."""
    from tests.fuzz.process_image import packed

    for kind, code in ((2, 0), (8, 3)):  # FL_FLOCK, FL_LEASE
        capsule = shutil.copytree(nan_with_checkpoints.capsule, tmp_path / f"{kind}", copy_function=os.link)
        locks = capsule / layout.CHECKPOINT / "filelocks.img"
        locks.touch()
        lock = {"flag": kind, "type": 0, "pid": 1, "fd": 0, "start": 0, "len": 0}
        replace_file(capsule, locks, packed("FILE_LOCKS", [lock]))
        said = prismdbg("verify", capsule)
        assert said.code == code, said
        assert ("contains a lease of a file" in said.out + said.err) is (code == 3)


def test_what_the_images_name_is_what_the_starter_looks_at(
    nan_with_checkpoints: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing was refused before, the starter does it: the names are those of the images that are restored."""
    capsule = with_open(nan_with_checkpoints.capsule, tmp_path / "capsule", "/./proc/1/fd/9")
    monkeypatch.setattr(image_check, "refusal", lambda *_: "")
    request = ReplayRequest(capsule=Capsule.open(capsule), runtime="local")
    with (
        pytest.raises(FacilityError, match=r"/\./proc/1/fd/9 is not a plain absolute path"),
        open_replay(request, lambda _: None),
    ):
        pass
