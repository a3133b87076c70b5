"""`list --environments` and `rm --environments`: sizes are said before anything goes, and the newest stays."""

from __future__ import annotations

import json

import pytest

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.jobs.replay import environment_images
from prismdbg.runtime.docker.engine import StoredImage

IMAGES = [StoredImage(tag=f"prismdbg/env:{n}", size_bytes=n << 30, created_ns=n * 10**18) for n in (1, 2, 3)]


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was removed; a container stands on the second image."""
    gone: list[str] = []

    def remove(images: list[StoredImage], on_removed: object) -> None:
        for image in images:
            gone.append(image.tag)
            on_removed(image, image is not IMAGES[1])  # type: ignore[operator]

    monkeypatch.setattr(environment_images, "environment_images", lambda: list(IMAGES))
    monkeypatch.setattr(environment_images, "remove_images", remove)
    return gone


def test_all_but_the_newest_go(removed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["rm", "--environments"]) == ExitCode.OK
    assert removed == ["prismdbg/env:1", "prismdbg/env:2"]
    shown = capsys.readouterr()
    assert shown.err == "3 container images; the oldest 2 (3.0 GiB) can be removed\n"
    assert shown.out.splitlines() == [
        "prismdbg/env:1  1.0 GiB",
        "prismdbg/env:2  2.0 GiB  kept: a container uses it",
    ]


@pytest.mark.parametrize(("options", "gone"), [(["--keep", "2"], 1), (["--keep", "9"], 0), (["-n"], 0)])
def test_what_stays(options: list[str], gone: int, removed: list[str]) -> None:
    assert main.run(["rm", "--environments", *options]) == ExitCode.OK
    assert len(removed) == gone


@pytest.mark.parametrize("line", [["--environments", "a-run"], ["--environments", "--keep-bytes", "1GiB"], []])
def test_what_makes_no_sense(line: list[str], removed: list[str]) -> None:
    assert main.run(["rm", *line]) == ExitCode.USAGE
    assert removed == []


def test_they_are_listed(removed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["list", "--environments", "--json"]) == ExitCode.OK
    listed = json.loads(capsys.readouterr().out)
    assert [(image["tag"], image["size_bytes"]) for image in listed][:1] == [("prismdbg/env:1", 1 << 30)]
    assert main.run(["list", "--environments"]) == ExitCode.OK
    assert "3.0 GiB" in capsys.readouterr().out
