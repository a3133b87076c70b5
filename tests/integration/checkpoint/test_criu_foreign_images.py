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
    cores = (capsule / layout.CHECKPOINT).glob("core-*.img")
    main_core = min(cores, key=lambda path: int(path.stem.partition("-")[2]))
    magic, (entry,) = parsed(main_core.read_bytes())
    del entry["tc"]
    replace_file(capsule, main_core, packed(magic, [entry]))
    assert prismdbg("verify", capsule).code == 0
    said = prismdbg("replay", capsule, "--runtime", "local")
    assert said.code == 3, said
    assert "error: the checkpoint is not one that criu can restore: Core task state data missed" in said.err
    assert "Traceback" not in said.err
