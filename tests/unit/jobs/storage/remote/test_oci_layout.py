"""A capsule as an OCI image: digests, annotations, and what skopeo says of it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import zstandard
from capsules import IMAGE, MANIFEST, make_capsule
from click.testing import CliRunner

from prismdbg.capsule.manifest import Manifest
from prismdbg.cli.main import cli
from prismdbg.errors import UsageError
from prismdbg.jobs.storage.pack import unpack
from prismdbg.jobs.storage.remote.oci_image import Pushed
from prismdbg.jobs.storage.remote.oci_layout import write_layout

SKOPEO = shutil.which("skopeo")


def pushed(tmp_path: Path, manifest: Manifest = MANIFEST) -> Pushed:
    return write_layout(make_capsule(tmp_path / "c", manifest), tmp_path / "image", "latest")


def blob(layout: Path, digest: str) -> bytes:
    kind, _, name = digest.partition(":")
    data = (layout / "blobs" / kind / name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == name
    return data


def manifest_of(layout: Path) -> dict[str, Any]:
    (listed,) = json.loads((layout / "index.json").read_text())["manifests"]
    found: dict[str, Any] = json.loads(blob(layout, listed["digest"]))
    return found


def test_each_blob_is_what_its_digest_says(tmp_path: Path) -> None:
    layout = pushed(tmp_path).path
    manifest = manifest_of(layout)
    (layer,) = manifest["layers"]
    for each in (manifest["config"], layer):
        assert len(blob(layout, each["digest"])) == each["size"]
    (content,) = json.loads(blob(layout, manifest["config"]["digest"]))["rootfs"]["diff_ids"]
    unpacked = zstandard.ZstdDecompressor().stream_reader(blob(layout, layer["digest"])).read()
    assert content == f"sha256:{hashlib.sha256(unpacked).hexdigest()}"
    assert len(list((layout / "blobs" / "sha256").iterdir())) == 3
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}


def test_the_layer_is_the_packed_capsule(tmp_path: Path) -> None:
    layout = pushed(tmp_path).path
    layer = layout / "blobs" / manifest_of(layout)["layers"][0]["digest"].replace(":", "/")
    assert unpack(layer, tmp_path / "again").manifest.job == MANIFEST.job


def test_only_a_checkpoint_is_annotated_as_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plain = manifest_of(pushed(tmp_path / "a").path)["annotations"]
    assert plain["prismdbg.rank"] == "0"
    assert not any("checkpoint" in name for name in plain)
    found = manifest_of(pushed(tmp_path / "b", IMAGE).path)["annotations"]
    assert found["io.podman.annotations.checkpoint.name"] == "gpt-rank-0"
    assert found["io.kubernetes.cri-o.annotations.checkpoint.name"] == "gpt-rank-0"
    assert found["io.podman.annotations.checkpoint.host.arch"] == "amd64"


def test_what_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        pushed(tmp_path)


def test_the_command_names_folder_and_tag(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "c").path
    said = CliRunner().invoke(cli, ["build", str(capsule), "--push", f"oci:{tmp_path / 'i'}:v1", "--json"])
    assert said.exit_code == 0, said.output
    found = json.loads(said.output)
    assert (found["tag"], found["digest"][:7]) == ("v1", "sha256:")
    for wrong in ("docker://x/y", "oci:", "oci:a:b:c", str(tmp_path)):
        said = CliRunner().invoke(cli, ["build", str(capsule), "--push", wrong])
        assert isinstance(said.exception, UsageError), wrong


@pytest.mark.skipif(SKOPEO is None, reason="skopeo is not installed")
def test_skopeo_inspects_and_copies_it(tmp_path: Path) -> None:
    made = pushed(tmp_path, IMAGE)
    shown = subprocess.run(
        [str(SKOPEO), "inspect", f"oci:{made.path}:latest"], check=True, capture_output=True, timeout=60
    )
    found = json.loads(shown.stdout)
    assert (found["Digest"], found["Os"], found["Architecture"]) == (made.digest, "linux", "amd64")
    assert len(found["Layers"]) == 1
    copied = tmp_path / "copied"
    subprocess.run(
        [str(SKOPEO), "--insecure-policy", "copy", f"oci:{made.path}:latest", f"oci:{copied}:other"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert manifest_of(copied) == manifest_of(made.path)
