"""A capsule's OCI image in a registry and in podman's storage, where these tools are."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from capsules import IMAGE, MANIFEST, make_capsule
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Manifest
from prismdbg.jobs.storage.oci_layout import Pushed, annotations_of, write_layout
from prismdbg.jobs.storage.pack import unpack

SKOPEO, PODMAN = shutil.which("skopeo"), shutil.which("podman")
REGISTRY = shutil.which("docker-registry") or shutil.which("registry")
CAPSULES = pytest.mark.parametrize("manifest", [MANIFEST, IMAGE], ids=["start", "checkpoint"])
BOUND_S = 120.0
CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""

Spawn = Callable[..., subprocess.Popen[str]]


def pushed(tmp_path: Path, manifest: Manifest) -> Pushed:
    return write_layout(make_capsule(tmp_path / "c", manifest), tmp_path / "image", "latest")


def ran(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def registry(tmp_path: Path, spawn: Spawn) -> str:
    """Host and port of one that is empty."""
    if REGISTRY is None:
        pytest.skip("no registry is installed (docker-registry)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    config = tmp_path / "registry.yml"
    config.write_text(CONFIG.format(folder=tmp_path / "registry", port=port))
    with (tmp_path / "registry.log").open("w") as log:
        spawn(REGISTRY, "serve", str(config), stdout=log, stderr=log)
    wait_for(lambda: answers(f"http://127.0.0.1:{port}/v2/"), 30.0, "the registry to answer")
    return f"127.0.0.1:{port}"


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


@CAPSULES
def test_through_a_registry_it_comes_back_as_it_was(tmp_path: Path, registry: str, manifest: Manifest) -> None:
    if SKOPEO is None:
        pytest.skip("skopeo is not installed")
    made = pushed(tmp_path, manifest)
    there, back = f"docker://{registry}/capsules/rank:latest", tmp_path / "back"
    ran(SKOPEO, "--insecure-policy", "copy", "--dest-tls-verify=false", f"oci:{made.path}:latest", there)
    ran(SKOPEO, "--insecure-policy", "copy", "--src-tls-verify=false", there, f"oci:{back}:latest")
    blobs = [{blob.name: blob.read_bytes() for blob in (at / "blobs/sha256").iterdir()} for at in (made.path, back)]
    assert blobs[0] == blobs[1]
    assert unpack(layer_of(back), tmp_path / "again").manifest == Capsule.open(tmp_path / "c").manifest


def layer_of(layout: Path) -> Path:
    (listed,) = json.loads((layout / "index.json").read_text())["manifests"]
    (layer,) = json.loads(blob(layout, listed["digest"]).read_text())["layers"]
    return blob(layout, layer["digest"])


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


@pytest.mark.skipif(PODMAN is None, reason="podman is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="podman's storage is in a folder of the test: that needs root")
@CAPSULES
def test_podman_pulls_it(tmp_path: Path, manifest: Manifest) -> None:
    made = pushed(tmp_path, manifest)
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    with TemporaryDirectory(dir="/tmp", prefix="podman") as short:  # podman takes no path of more than 50 characters
        podman = (
            PODMAN, "--root", tmp_path / "storage", "--runroot", f"{short}/run", "--tmpdir", f"{short}/tmp",
            "--storage-driver", "vfs", "--events-backend", "none", "--cgroup-manager", "cgroupfs",
        )  # fmt: skip
        name = ran(*podman, "pull", "--signature-policy", policy, f"oci:{made.path}:latest").strip()
        (found,) = json.loads(ran(*podman, "image", "inspect", name))
    assert (found["Digest"], found["Architecture"]) == (made.digest, "amd64")
    assert found["Annotations"] == annotations_of(manifest)
