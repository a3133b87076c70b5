"""Where a rank's files lie in the place of a replay, and which names are links there."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.errors import CapsuleError
from prismdbg.runtime.environment import InstalledFile, of_files
from prismdbg.runtime.rank_links import leads_to, with_links
from prismdbg.runtime.spec import Bind, LaidFile, ProgramOrigin, ReplaySpec

PROGRAM = ProgramOrigin(executable="/bin/python", argv=("python",), env={}, cwd="/")
CONTENT = Path("/capsule/content")


def spec(tmp_path: Path, **more: object) -> ReplaySpec:
    return ReplaySpec(name="rank", origin=PROGRAM, session=tmp_path, python="/bin/python", **more)  # type: ignore[arg-type]


def test_files_lie_where_their_names_led(tmp_path: Path) -> None:
    files = (LaidFile(source=CONTENT, target="/job/train.py"), LaidFile(source=CONTENT, target="/real/lib/data.py"))
    links = {"/job": "/real", "/job/not/on/a/way": "/elsewhere"}
    found = with_links(spec(tmp_path, files=files, folders=("/job/out", "/real/out"), absent=("/job/new",)), links)
    assert [file.target for file in found.files] == ["/real/train.py", "/real/lib/data.py"]
    assert (found.folders, found.absent) == (("/real/out",), ("/real/new",))
    assert ("/job", "/real") in found.links


def test_links_in_links(tmp_path: Path) -> None:
    links = {"/a": "/b/c", "/b": "/d", "/d/c/x": "/e"}
    assert leads_to("/a/x/y", links) == "/e/y"
    assert leads_to("/ab", links) == "/ab"
    with pytest.raises(CapsuleError, match="link loop"):
        leads_to("/a/x", {"/a": "/b", "/b": "/a"})


def test_a_file_with_two_names_is_one_with_its_content(tmp_path: Path) -> None:
    mine = Path("/mine/train.py")
    files = (
        LaidFile(source=CONTENT, target="/job/train.py"),
        LaidFile(source=None, target="/real/train.py", mode=0o600, size_bytes=7, is_written=True),
        LaidFile(source=None, target="/job/listed", mode=0, size_bytes=0),
        LaidFile(source=CONTENT, target="/real/listed"),
        LaidFile(source=CONTENT, target="/real/fixed.py"),
        LaidFile(source=mine, target="/job/fixed.py"),
    )
    found = with_links(spec(tmp_path, files=files, absent=("/real/fixed.py",)), {"/job": "/real"})
    train, listed, fixed = found.files
    assert (train.source, train.size_bytes, train.is_written) == (CONTENT, 7, True)
    assert (listed.source, listed.size_bytes) == (CONTENT, None)
    assert fixed.source == mine, "what replaces a captured file, by whichever name"
    assert found.absent == (), "a file that is there is not hidden by its other name"


def test_what_is_a_folder_in_every_place_or_leads_to_ours_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real" / "session").mkdir(parents=True)
    (tmp_path / "home").symlink_to("real")
    installed = of_files([InstalledFile("/opt/python/lib/x.py", 0o644)])
    binds = (Bind(source=tmp_path, target="/agents/rank"),)
    links = {"/tmp": "/evil", "/usr": "/evil", "/opt/python": "/evil", "/agents": "/evil", "/job": "/proc/self"}
    links |= {f"{tmp_path}/home": f"{tmp_path}/real"}
    found = with_links(spec(tmp_path / "home" / "session", environment=installed, binds=binds), links)
    assert found.links == ((f"{tmp_path}/home", f"{tmp_path}/real"),), "it leads there on this machine, too"
    links[f"{tmp_path}/home"] = "/evil"
    assert with_links(spec(tmp_path / "home" / "session", environment=installed, binds=binds), links).links == ()


def test_a_large_file_is_seen_where_it_lies_only_if_it_lies_there(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "data.bin").touch()
    (tmp_path / "named").symlink_to("real")
    named = f"{tmp_path}/named/data.bin"
    file = LaidFile(source=Path(named), target=named)
    (there,) = with_links(spec(tmp_path / "s", files=(file,)), {f"{tmp_path}/named": f"{tmp_path}/real"}).files
    assert there.source == Path(there.target) == tmp_path / "real" / "data.bin"
    (elsewhere,) = with_links(spec(tmp_path / "s", files=(file,)), {f"{tmp_path}/named": "/gone"}).files
    assert (elsewhere.source, elsewhere.target) == (Path(named), "/gone/data.bin")
