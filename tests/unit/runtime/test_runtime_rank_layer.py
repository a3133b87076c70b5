"""What a container is given of the rank's files: how much a capsule can make the engine write."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from prismdbg.errors import CapsuleError
from prismdbg.runtime.docker import image_layers
from prismdbg.runtime.docker.image_layers import add_rank_files
from prismdbg.runtime.environment import Environment, InstalledFile, of_files
from prismdbg.runtime.limits import LimitReached, usual
from prismdbg.runtime.spec import LaidFile, ProgramOrigin, ReplaySpec

PROGRAM = ProgramOrigin(executable="/bin/python", argv=("python",), env={}, cwd="/")


def laid(spec: ReplaySpec, environment: Environment | None = None, bound: Iterable[str] | None = None) -> list[str]:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        add_rank_files(tar, spec, environment or of_files(()), bound=bound)
    content.seek(0)
    with tarfile.open(fileobj=content) as tar:
        return tar.getnames()


def spec(tmp_path: Path, **more: object) -> ReplaySpec:
    return ReplaySpec(name="rank", origin=PROGRAM, session=tmp_path, python="/bin/python", **more)  # type: ignore[arg-type]


def test_one_content_for_many_files_is_bounded(tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.touch()
    os.truncate(content, 1 << 20)
    files = tuple(LaidFile(source=content, target=f"/data/{number}") for number in range(5))
    most = replace(usual(), disk_bytes=4 << 20)
    assert "data/3" in laid(spec(tmp_path, files=files[:4], limits=most))
    with pytest.raises(LimitReached, match="limit of disk"):
        laid(spec(tmp_path, files=files, limits=most))


def test_folders_that_a_short_list_makes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path has hundreds of them on its way."""
    assert image_layers.MAX_MADE_FOLDERS == 200_000
    monkeypatch.setattr(image_layers, "MAX_MADE_FOLDERS", 2_000)
    deep = "/a" * 250
    folders = tuple(f"/{number}{deep}" for number in range(2_000 // 250))
    assert len(laid(spec(tmp_path, folders=folders[:-1]))) > 1_500
    with pytest.raises(CapsuleError, match="in more than 2,000 folders"):
        laid(spec(tmp_path, folders=folders))


def test_links_of_the_rank_come_before_what_lies_behind_them(tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.touch()
    files = (LaidFile(source=content, target="/real/train.py"),)
    links = (("/job/named", "/real"), ("/agents", "/real"))
    names = laid(spec(tmp_path, files=files, links=links), bound=["/agents/x"])
    assert names == ["job", "job/named", "agents", "real", "real/train.py"]
    names = laid(spec(tmp_path, files=files, links=(("/agents/x/named", "/real"),)), bound=["/agents/x"])
    assert "agents/x/named" not in names


def test_nothing_is_unpacked_into_what_is_bound_through_a_link(tmp_path: Path) -> None:
    """The engine follows the container's links when it mounts, and unpacks with the mounts in place."""
    content = tmp_path / "content"
    content.touch()
    environment = of_files([InstalledFile("/lib", 0o777, target="usr/lib")])
    targets = ("/lib/x/agents/a", "/usr/lib/x/agents/a", "/usr/lib/x/beside")
    files = tuple(LaidFile(source=content, target=target) for target in targets)
    names = laid(spec(tmp_path, files=files, folders=("/usr/lib/x/agents/b",)), environment, ["/lib/x/agents"])
    assert [name for name in names if "agents" in name] == []
    assert "usr/lib/x/beside" in names
