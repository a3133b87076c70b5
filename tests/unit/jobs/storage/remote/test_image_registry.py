"""Capsules in a container registry: addresses, what may leave, what is fetched, and what skopeo's failures mean.

The program skopeo is a small script here, whose registry is a folder.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from capsules import IMAGE, MANIFEST, RANK, make_capsule
from tiny_log import write_training

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import add_files
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.jobs.capture.secret_search import report
from prismdbg.jobs.storage.pack import unpack
from prismdbg.jobs.storage.remote import fetched_cache, image_registry, skopeo
from prismdbg.jobs.storage.remote.image_registry import ImageAddress, fetch
from prismdbg.jobs.storage.remote.oci_image import BLOBS, LAYER, Pushed
from prismdbg.jobs.storage.remote.oci_layout import write_layout
from prismdbg.model.meanwhile import looked_on_by

THERE = ImageAddress.of("docker://example.org/team/rank0:v1")
SKOPEO = """\
#!/bin/sh
echo "$@" >> "$FAKE/calls"
[ "$1" = --insecure-policy ] && shift
case "$1" in
inspect) cat "$FAKE"/image/blobs/sha256/"$(cat "$FAKE/manifest")" ;;
copy) for last; do :; done
    case "$last" in oci:*) cp -r "$FAKE/image" image ;; *) cp -r image "$FAKE/image" ;; esac ;;
esac
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is the registry."""
    folder = tmp_path / "fake"
    folder.mkdir()
    install(SKOPEO, tmp_path, monkeypatch)
    monkeypatch.setenv("FAKE", str(folder))
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "cache"))
    return folder


def install(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "skopeo"
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


@pytest.fixture
def stored(tmp_path: Path, fake: Path) -> Path:
    """The blob of the layer of what the registry has."""
    made = write_layout(make_capsule(tmp_path / "c"), fake / "image", "v1")
    (fake / "manifest").write_text(made.digest.partition(":")[2])
    return max((fake / "image" / BLOBS).iterdir(), key=lambda path: path.stat().st_size)


def calls(fake: Path) -> list[str]:
    path = fake / "calls"
    return [line.removeprefix("--insecure-policy ") for line in path.read_text().splitlines()] if path.exists() else []


def said(_: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("ghcr.io/team/rank0", "docker://ghcr.io/team/rank0:latest"),
        ("docker://ghcr.io/team/rank0:v1.2", "docker://ghcr.io/team/rank0:v1.2"),
        ("localhost/a", "docker://localhost/a:latest"),
        ("registry:5000/a_b/c-d", "docker://registry:5000/a_b/c-d:latest"),
        ("[::1]:5000/a", "docker://[::1]:5000/a:latest"),
        ("docker.io/me/a@sha256:" + "0" * 64, "docker://docker.io/me/a@sha256:" + "0" * 64),
    ],
)
def test_addresses_are_those_of_docker_and_skopeo(text: str, whole: str) -> None:
    assert str(ImageAddress.of(text)) == whole


@pytest.mark.parametrize(
    "text",
    ["me/rank0", "docker://me/rank0:v1", "rank0", "ghcr.io", "ghcr.io/", "ghcr.io/A", "ghcr.io/a:", "./x/y", "/x/y",
     "-a.b/c", "ghcr.io/a:b:c", "ghcr.io/../a", "docker://ghcr.io/a b", "a.b/c@sha256:0", "a.b/c\n"],
)  # fmt: skip
def test_nothing_goes_to_docker_hub_or_elsewhere_by_accident(text: str) -> None:
    with pytest.raises(UsageError, match="is not an image in a registry"):
        ImageAddress.of(text)


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("localhost", True), ("localhost:5000", True), ("127.0.0.1:5000", True), ("[::1]:5000", True),
     ("127.0.0.1.example.org", False), ("localhost.example.org", False), ("10.0.0.1:5000", False)],
)  # fmt: skip
def test_plain_http_is_for_this_machine_alone(fake: Path, stored: Path, host: str, is_local: bool) -> None:
    fetch(ImageAddress.of(f"{host}/a"), said)
    assert len(calls(fake)) == 2
    assert all(("-tls-verify=false" in line) is is_local for line in calls(fake))


@pytest.mark.parametrize("has_policy", [True, False])
def test_a_policy_for_signatures_is_kept(
    tmp_path: Path, fake: Path, stored: Path, monkeypatch: pytest.MonkeyPatch, has_policy: bool
) -> None:
    monkeypatch.setattr(skopeo, "_POLICIES", (tmp_path if has_policy else tmp_path / "none",))
    fetch(THERE, said)
    lines = (fake / "calls").read_text().splitlines()
    assert all(line.startswith("--insecure-policy ") is not has_policy for line in lines)


def test_what_is_fetched_is_the_packed_capsule_once(tmp_path: Path, fake: Path, stored: Path) -> None:
    lines: list[str] = []
    found = fetch(THERE, lines.append)
    assert (found.name, found.read_bytes()) == ("rank0.tar.zst", stored.read_bytes())
    assert found.stat().st_mode & 0o077 == 0
    assert unpack(found, tmp_path / "again").manifest == Capsule.open(tmp_path / "c").manifest
    assert fetch(THERE, lines.append) == found and len(lines) == 1
    assert [line.split()[0] for line in calls(fake)] == ["inspect", "copy", "inspect"]
    assert f"docker://example.org/team/rank0@sha256:{(fake / 'manifest').read_text()}" in calls(fake)[1]


def test_commands_that_read_a_capsule_take_the_address(
    fake: Path, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["inspect", str(THERE), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["job"] == MANIFEST.job
    assert main.run(["inspect", "docker://rank0"]) == ExitCode.USAGE


def test_what_its_digest_does_not_name_is_refused(fake: Path, stored: Path) -> None:
    data = stored.read_bytes()
    stored.chmod(0o600)
    stored.write_bytes(bytes(len(data)))
    with pytest.raises(CapsuleError, match="lacks what its digest names"):
        fetch(THERE, said)
    assert list(fetched_cache.cache_folder().iterdir()) == []


LAYER_0 = {"mediaType": LAYER, "size": 1, "digest": "sha256:" + "0" * 64}


@pytest.mark.parametrize(
    "manifest",
    ["{", "[]", "{}", '{"layers": []}', "[" * 100_000, json.dumps({"layers": [LAYER_0, LAYER_0]}),
     json.dumps({"layers": [LAYER_0 | {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}]}),
     json.dumps({"layers": [LAYER_0 | {"digest": "../x"}]})],
)  # fmt: skip
def test_an_image_of_something_else_is_refused(fake: Path, stored: Path, manifest: str) -> None:
    path = fake / "image" / BLOBS / (fake / "manifest").read_text()
    path.chmod(0o600)
    path.write_text(manifest)
    with pytest.raises(CapsuleError, match="is not a capsule's image"):
        fetch(THERE, said)


def test_what_does_not_fit_on_the_disk_is_not_fetched(
    fake: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_cache, "FREE_LEFT_BYTES", 1 << 60)
    with pytest.raises(FacilityError, match="has room for 0 B"):
        fetch(THERE, said)
    assert len(calls(fake)) == 1


def test_a_registry_that_sends_more_than_it_declares_is_left(
    tmp_path: Path, fake: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_registry, "_MORE_BYTES", 0)
    (tmp_path / "bin" / "skopeo").write_text(
        SKOPEO.replace("copy) ", "copy) cp -r $FAKE/image image; exec sleep 600; ")
    )
    with pytest.raises(CapsuleError, match="sends more than it declares"):
        fetch(THERE, said)


def push(capsule: Path, *options: str) -> int:
    return main.run(["build", str(capsule), "--push", "example.org/team/rank0:v1", *options])


def test_the_command_pushes_and_names_the_digest(
    tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert push(make_capsule(tmp_path / "c").path, "--json") == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    (listed,) = json.loads((fake / "image" / "index.json").read_text())["manifests"]
    assert (told["address"], told["tag"], told["digest"]) == (str(THERE), "v1", listed["digest"])
    assert calls(fake) == [f"copy --preserve-digests oci:image:v1 {THERE}"]


def test_what_pack_would_not_share_is_not_pushed(
    tmp_path: Path, fake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = make_capsule(tmp_path / "c", IMAGE).path
    assert push(memory) == ExitCode.FAILED
    assert "secret" in capsys.readouterr().err and calls(fake) == []
    assert push(memory, "--share-anyway") == ExitCode.OK
    assert len(calls(fake)) == 1


def test_secrets_are_masked_before_a_push(tmp_path: Path, fake: Path) -> None:
    config = tmp_path / "settings.py"
    config.write_text("password = 'q7aB3xaB3xaB3x'\n")
    write_training(tmp_path / "log", 3)
    with CapsuleWriter(tmp_path / "c") as writer:
        writer.add_tree(layout.LOG, tmp_path / "log")
        add_files(writer, [str(config)])
        writer.add_json(layout.RANK, RANK)
        capsule = writer.finish(MANIFEST)
    assert report(capsule).kept and push(capsule.path) == ExitCode.FAILED and calls(fake) == []
    assert push(capsule.path, "--redact") == ExitCode.OK
    blob = max((fake / "image" / BLOBS).iterdir(), key=lambda path: path.stat().st_size)
    assert not report(unpack(blob, tmp_path / "again")).kept


@pytest.mark.parametrize(
    "options",
    [("--push", "oci:i", "--redact"), ("--push", "a.b/c", "--redact", "--share-anyway"), ("--share-anyway",),
     ("--push", "a.b/c@sha256:" + "0" * 64)],
)  # fmt: skip
def test_options_that_do_not_fit_together_are_refused(tmp_path: Path, fake: Path, options: tuple[str, ...]) -> None:
    assert main.run(["build", str(make_capsule(tmp_path / "c").path), *options]) == ExitCode.USAGE
    assert calls(fake) == []


def test_without_skopeo_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert push(tmp_path / "c") == ExitCode.LACKING, "before it looks at the capsule"
    assert "apt-get install skopeo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "what", "advice"),
    [
        ('pinging container registry h: Get \\"https://h/v2/\\": dial tcp: lookup h on 1.1.1.1:53: no such host',
         "host h:1 was not found", "check"),
        ('Get \\"http://h:1/v2/\\": dial tcp 127.0.0.1:1: connect: connection refused', "nothing answers at", "check"),
        ('Get \\"https://h:1/v2/\\": dial tcp 10.0.0.1:1: i/o timeout', "nothing answers at h:1", "check"),
        ('Get \\"https://h/v2/\\": http: server gave HTTP response to HTTPS client', "h:1 has no TLS", "give it"),
        ('Get \\"https://h/v2/\\": x509: cannot validate certificate for h because it has no IP SANs',
         "the certificate of h:1 is not accepted", "put the certificate"),
        ("checking whether a blob sha256:0 exists in h/a: unauthorized: authentication required",
         "h:1 wants a login", "log in: skopeo login h:1, or docker login h:1"),
        ("writing blob: initiating layer upload to /v2/a/b/blobs/uploads/ in h: denied", "does not allow it", "log in"),
        ("writing blob: initiating layer upload to /v2/a/: StatusCode: 413, <html>too large</html>",
         "the layer is too large for h:1", "raise"),
        ("writing blob: uploading layer chunked: received unexpected HTTP status: 500 Internal Server Error",
         "h:1 failed", "check the registry's log, and the space"),
        ('writing blob: Patch \\"http://h/v2/a/b/blobs/uploads/1?_state=abc\\": EOF', "the connection to h:1 broke",
         "try again"),
        ('Patch \\"http://h/v2/uploads/1\\": write tcp 1.1.1.1:2->1.1.1.1:3: write: connection reset by peer',
         "the connection to h:1 broke", "try again"),
        ('Patch \\"http://h/v2/a\\": readfrom tcp 1.1.1.1:2: write tcp 1.1.1.1:2: use of closed network connection',
         "the connection to h:1 broke", "try again"),
        ("Error parsing image name: reading manifest d in h/a: manifest unknown: manifest unknown",
         "nothing is there", "check name and tag"),
        ('odd: \\"http://h/v2/a?_state=signed\\": words', 'skopeo failed: odd: "http://h/v2/a": words', "check"),
    ],
)  # fmt: skip
def test_each_failure_is_one_clear_error(said: str, what: str, advice: str) -> None:
    error = skopeo.failure(
        skopeo.Registry("docker://h:1/a:b", "h:1"), f'time="2026-01-01T00:00:00Z" level=fatal msg="{said}"\n'
    )
    assert what in str(error) and str(error).startswith("docker://h:1/a:b: ") and "signed" not in str(error)
    assert error.hint.startswith(advice)


HANGS = """\
#!/bin/sh
echo $$ > "$FAKE/pid"
exec 3< "$FAKE/image/blobs/sha256/layer"
dd bs=1000 count=1 <&3 > /dev/null 2>&1
exec sleep 600
"""


@pytest.fixture
def hanging(tmp_path: Path, fake: Path) -> Callable[[], None]:
    """A copy that ends never, after it has read 1,000 bytes."""
    (fake / "image" / BLOBS).mkdir(parents=True)
    (fake / "image" / BLOBS / "layer").write_bytes(bytes(5000))
    (tmp_path / "bin" / "skopeo").write_text(HANGS)
    made = Pushed(path=fake / "image", tag="v1", digest="", size_bytes=5000)
    return lambda: image_registry.push(made, THERE)


def test_a_registry_that_does_not_go_on_is_an_error(
    fake: Path, hanging: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skopeo, "STALLED_S", 0.5)
    told: list[str] = []
    with (
        looked_on_by(SimpleNamespace(show=told.append, over=lambda: None)),
        pytest.raises(FacilityError, match=r"example\.org did not go on"),
    ):
        hanging()
    assert "pushing: 1000 B of 4.9 KiB" in told
    assert not Path("/proc", (fake / "pid").read_text().strip()).exists()


def test_an_interrupt_ends_the_copy(fake: Path, hanging: Callable[[], None]) -> None:
    def show(text: str) -> None:
        if "1000 B" in text:
            raise KeyboardInterrupt

    started = time.monotonic()
    with looked_on_by(SimpleNamespace(show=show, over=lambda: None)), pytest.raises(KeyboardInterrupt):
        hanging()
    assert time.monotonic() - started < 60
    assert not Path("/proc", (fake / "pid").read_text().strip()).exists()
