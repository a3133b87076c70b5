"""Mount points by their real names, whatever bytes are in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from starter_parts import starter_parts

TABLE = (
    "24 1 0:5 / / rw - ext4 /dev/vda rw\n"
    "36 24 0:9 / /müll\\040ort rw,nosuid shared:7 - tmpfs none rw,size=4k\n"
    "37 24 0:10 / /a\u2028b\u00a0c rw - overlay overlay rw,upperdir=/über,workdir=/w\n"
    "38 24 0:11 / /back\\134slash rw - tmpfs none rw\n"
).encode() + b"39 24 0:12 / /\xff rw - tmpfs none rw\n"


@pytest.fixture(scope="module")
def starter() -> Any:
    return starter_parts()


def test_a_name_is_what_it_is_on_the_disk(starter: Any) -> None:
    found = starter.mounts(TABLE)
    assert [mount.point for mount in found] == [
        "/",
        "/müll ort",
        "/a\u2028b\u00a0c",
        "/back\\slash",
        os.fsdecode(b"/\xff"),
    ]
    assert [mount.kind for mount in found] == ["ext4", "tmpfs", "overlay", "tmpfs", "tmpfs"]
    assert found[2].options == "rw,upperdir=/über,workdir=/w"


def test_what_is_mounted_here_is_there(starter: Any) -> None:
    points = [mount.point for mount in starter.mounts()]
    assert "/proc" in points and all(Path(point).is_absolute() for point in points)
