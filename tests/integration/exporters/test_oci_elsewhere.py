"""A capsule's OCI image in a registry and in podman's storage, where these tools are."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from capsules import IMAGE, MANIFEST, make_capsule
from waiting import wait_for

from prismdbg.capsule.manifest import Manifest
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.jobs.storage.pack import pack
from prismdbg.jobs.storage.remote.oci_image import Pushed
from prismdbg.jobs.storage.remote.oci_layout import annotations_of, write_layout

SKOPEO, PODMAN = shutil.which("skopeo"), shutil.which("podman")
REGISTRY = shutil.which("docker-registry") or shutil.which("registry")
CAPSULES = pytest.mark.parametrize("manifest", [MANIFEST, IMAGE], ids=["start", "checkpoint"])
BOUND_S = 120.0
CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/registry}}}}
http: {{addr: "127.0.0.1:{port}"}}
auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}
"""
USER, PASSWORD = "user", "secret"
HTPASSWD = "user:$2b$04$DBwNNn.Lf5LPrtQ454YKYeIuluseSg1MQ2snlHO0sM5RUQNXEh01G\n"  # bcrypt of "secret"


@dataclass(frozen=True)
class Registry:
    """host: with its port. log: what it was asked for."""

    host: str
    log: Path


def pushed(tmp_path: Path, manifest: Manifest) -> Pushed:
    return write_layout(make_capsule(tmp_path / "c", manifest), tmp_path / "image", "latest")


def ran(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if REGISTRY is None:
        pytest.skip("no registry is installed (docker-registry)")
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    (folder / "htpasswd").write_text(HTPASSWD)
    config, log = folder / "registry.yml", folder / "registry.log"
    config.write_text(CONFIG.format(folder=folder, port=port))
    with log.open("w") as out, subprocess.Popen([REGISTRY, "serve", str(config)], stdout=out, stderr=out) as process:
        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}/v2/"), 30.0, "the registry to answer")
            yield Registry(f"127.0.0.1:{port}", log)
        finally:
            process.terminate()


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except (urllib.error.URLError, ConnectionError):
        return False
    return False


@pytest.fixture
def registry(running: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """One that wants a login, which the containers' tools have."""
    if SKOPEO is None:
        pytest.skip("skopeo is not installed")
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {running.host: {"auth": login}}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "cache"))
    return running


@CAPSULES
def test_through_a_registry_it_comes_back_as_it_was(
    tmp_path: Path, registry: Registry, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pushed(tmp_path, manifest)
    there = f"docker://{registry.host}/capsules/rank-{manifest.origin}:v1"
    for uploads in (2, 0):  # layer and config, then nothing that is missing
        before = uploaded(registry)
        assert main.run(["build", str(tmp_path / "c"), "--push", there, "--share-anyway"]) == ExitCode.OK
        assert uploaded(registry) - before == uploads
    ran(SKOPEO, "--insecure-policy", "copy", "--src-tls-verify=false", there, f"oci:{tmp_path / 'back'}:latest")
    blobs = [
        {blob.name: blob.read_bytes() for blob in (tmp_path / at / "blobs/sha256").iterdir()}
        for at in ("image", "back")
    ]
    assert blobs[0] == blobs[1]
    assert json.loads(ran(SKOPEO, "inspect", "--tls-verify=false", there))["Digest"] == made.digest
    monkeypatch.chdir(tmp_path)
    assert main.run(["unpack", there]) == ExitCode.OK
    again = tmp_path / f"rank-{manifest.origin}"
    assert again.is_dir() and pack(again, tmp_path / "again.tar.zst")
    assert (tmp_path / "again.tar.zst").read_bytes() == layer_of(made.path).read_bytes()


def uploaded(registry: Registry) -> int:
    """Blobs that it was sent so far."""
    return registry.log.read_text().count('"PATCH /v2/')


def test_without_its_login_it_is_said_how_to_log_in(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "auth.json").write_text("{}")
    monkeypatch.setenv("HOME", str(tmp_path))
    capsule = make_capsule(tmp_path / "c").path
    assert main.run(["build", str(capsule), "--push", f"{registry.host}/private/rank0"]) == ExitCode.LACKING
    assert f"log in: skopeo login {registry.host}" in capsys.readouterr().err


def layer_of(layout: Path) -> Path:
    (listed,) = json.loads((layout / "index.json").read_text())["manifests"]
    (layer,) = json.loads(blob(layout, listed["digest"]).read_text())["layers"]
    return blob(layout, layer["digest"])


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


@pytest.mark.skipif(PODMAN is None, reason="podman is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="podman's storage is in a folder of the test: that needs root")
@CAPSULES
def test_podman_pulls_it(tmp_path: Path, registry: Registry, manifest: Manifest) -> None:
    made, there = pushed(tmp_path, manifest), f"docker://{registry.host}/podman/{manifest.origin}:v1"
    assert main.run(["build", str(tmp_path / "c"), "--push", there, "--share-anyway"]) == ExitCode.OK
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    with TemporaryDirectory(dir="/tmp", prefix="podman") as short:  # podman takes no path of more than 50 characters
        podman = (
            PODMAN, "--root", tmp_path / "storage", "--runroot", f"{short}/run", "--tmpdir", f"{short}/tmp",
            "--storage-driver", "vfs", "--events-backend", "none", "--cgroup-manager", "cgroupfs",
        )  # fmt: skip
        for source in (f"oci:{made.path}:latest", there):
            name = ran(*podman, "pull", "--tls-verify=false", "--signature-policy", policy, source).strip()
            (found,) = json.loads(ran(*podman, "image", "inspect", name))
            assert (found["Digest"], found["Architecture"]) == (made.digest, "amd64")
            assert found["Annotations"] == annotations_of(manifest)
