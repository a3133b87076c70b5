"""What is read from a checkpoint, over images given as pycriu would give them."""

from __future__ import annotations

import copy
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from prismdbg.checkpoint import bindings, image_check, images
from prismdbg.checkpoint.bindings import as_entries
from prismdbg.checkpoint.bundle import Criu
from prismdbg.errors import CapsuleError

CRIU = Criu(folder=Path("/criu"), version="4.2", loader="l", program="p", libraries="lib", bindings="python")
CREDS = {"uid": 1000, "gid": 100, "cap_prm": [7, 1], "cap_eff": [7, 1], "cap_inh": [0, 0], "cap_bnd": [7, 1]}


def regular(number: int, name: str, *, flags: int = 0, mode: int = 0o100644, **more: int) -> dict[str, Any]:
    return {"id": number, "type": "REG", "reg": {"name": name, "flags": flags, "pos": 0, "mode": mode, **more}}


def inet(number: int, family: int, *words: int) -> dict[str, Any]:
    return {"id": number, "type": "INETSK", "isk": {"family": family, "src_addr": list(words)}}


def area(page: int, status: int, shmid: int) -> dict[str, int]:
    return {"start": page << 12, "end": (page + 1) << 12, "status": status, "shmid": shmid}


IMAGE: dict[str, list[dict[str, Any]]] = {
    "pstree.img": [
        {"pid": 7, "sid": 7, "threads": [7, 9]},
        {"pid": 8, "sid": 7, "threads": [8]},
    ],
    "files.img": [
        regular(1, "/usr/bin/python3.11", mode=0o100755, size=100),
        regular(2, "/data/log.txt", flags=1, size=55, pos=55),
        regular(3, "/data/journal", flags=1 | 1024, pos=33),
        regular(4, "/home/user/work", mode=0o040755),
        regular(5, "/lib/libtorch.so", size=10),
        regular(6, "/dev/null", mode=0o020666),
        {"id": 7, "type": "PIPE", "pipe": {"pipe_id": 4711}},
        {"id": 8, "type": "TTY", "tty": {"tty_info_id": 2026}},
        inet(9, 2, 0x0100007F),
        inet(10, 2, 0x0500000A),
        inet(11, 10, 0, 0, 0xFFFF0000, 0x0600000A),
        inet(12, 10, 0, 0, 0, 0),
        {"id": 13, "type": "UNIXSK", "usk": {"name": "/run/p/agents/a=3Db=00"}},
        {"id": 14, "type": "UNIXSK", "usk": {"name": "=00abstract"}},
        {"id": 15, "type": "UNIXSK", "usk": {}},
    ],
    "core-7.img": [
        {"thread_core": {"creds": CREDS, "pdeath_sig": 2}, "tc": {"oom_score_adj": -5, "rlimits": {"rlimits": [1, 2]}}}
    ],
    "core-9.img": [{"thread_core": {"creds": CREDS}}],
    "fs-7.img": [{"cwd_id": 4}],
    "mm-7.img": [{"exe_file_id": 1, "vmas": [area(1, 65, 5), area(2, 1, 2)]}],
    "mm-8.img": [{"exe_file_id": 1, "vmas": []}],
    "pagemap-7.img": [],
    "ids-7.img": [{"files_id": 2, "mnt_ns_id": 6}],
    "fdinfo-2.img": [
        {"fd": 0, "id": 8},
        {"fd": 1, "id": 7},
        {"fd": 2, "id": 2},
        {"fd": 5, "id": 3},
    ],
    "inventory.img": [{"root_ids": {"mnt_ns_id": 6}}],
    "tty-info.img": [{"id": 2026, "rdev": 0x8800, "dev": 0x1A}],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in IMAGE:
        (tmp_path / name).touch()
    give(monkeypatch, IMAGE)
    return tmp_path


def give(monkeypatch: pytest.MonkeyPatch, found: dict[str, list[dict[str, Any]]]) -> None:
    for module in (bindings, images, image_check):
        monkeypatch.setattr(module, "load_image", lambda criu, path: as_entries(copy.deepcopy(found[path.name])))
    monkeypatch.setattr(image_check, "pages_in", lambda criu, path: (1, 0))


def test_processes_and_threads(folder: Path) -> None:
    image = images.read(CRIU, folder)
    assert (image.root_pid, image.pids, image.leads_session) == (7, (7, 8, 9), True)
    assert (image.uid, image.gid, image.cwd) == (1000, 100, "/home/user/work")


def test_regular_files_with_the_sizes_they_must_have(folder: Path) -> None:
    files = {file.path: file for file in images.read(CRIU, folder).files}
    assert set(files) == {"/usr/bin/python3.11", "/data/log.txt", "/data/journal", "/lib/libtorch.so"}
    assert files["/data/log.txt"].size_bytes == 55
    assert files["/data/journal"].size_bytes == 33, "an appended file's size is its position"
    assert [path for path, file in files.items() if file.is_mapped] == ["/usr/bin/python3.11", "/lib/libtorch.so"]
    assert [path for path, file in files.items() if file.is_written] == ["/data/log.txt", "/data/journal"]


@pytest.mark.parametrize("path", ["/proc/7/status", "/proc/stat", "/sys/devices/system/cpu/online"])
def test_what_the_kernel_shows_is_no_file_that_a_restore_must_be_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    before = images.read(CRIU, folder)
    give(monkeypatch, {**IMAGE, "files.img": [*IMAGE["files.img"], regular(40, path, mode=0o100444)]})
    image = images.read(CRIU, folder)
    assert (image.files, image.folders) == (before.files, before.folders)


def test_files_in_shared_memory_are_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, {**IMAGE, "files.img": [*IMAGE["files.img"], regular(40, "/dev/shm/model", size=4)]})
    image = images.read(CRIU, folder)
    assert "/dev/shm/model" in [file.path for file in image.files]
    assert "/dev/shm" in image.folders


def test_addresses_beside_loopback(folder: Path) -> None:
    assert images.read(CRIU, folder).addresses == ("10.0.0.5", "10.0.0.6")


def test_bound_unix_sockets_and_the_folders_a_restore_needs(folder: Path) -> None:
    image = images.read(CRIU, folder)
    assert image.unix_sockets == ("/run/p/agents/a=b",)
    assert image.folders == ("/data", "/home/user/work", "/run/p/agents")


def test_what_replaces_standard_input_and_output(folder: Path) -> None:
    standards = [(standard.number, standard.key) for standard in images.read(CRIU, folder).standards]
    assert standards == [(0, "tty[8800:1a]"), (1, "pipe:[4711]"), (2, "data/log.txt")]


def test_the_restorable_copy_has_no_capabilities_and_the_original_is_untouched(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, list[dict[str, Any]]] = {}
    monkeypatch.setattr(
        images, "edit_image", lambda criu, source, target, entries: written.update({target.name: entries})
    )
    monkeypatch.setattr(
        images, "write_image", lambda criu, target, magic, entries: written.update({target.name: entries})
    )
    (folder / "seccomp.img").touch()  # what the rank had is not what it gets
    into = tmp_path / "prepared"
    for name in ("dump.log", "pages-1.img", "ghost-file-2.img", "stats-dump"):
        (folder / name).touch()
    give(monkeypatch, {**IMAGE, "ghost-file-2.img": [{"mode": 0o100600}]})
    seen_as = PurePosixPath("/capsule/checkpoint")
    names = images.prepare_restore(CRIU, folder, into, seen_as=seen_as, seccomp=b"filter")
    assert {"/data/log.txt", "/home/user/work", "/lib/libtorch.so"} < set(names)
    assert not any(name.startswith("/proc/") for name in names)
    assert set(written) == {"core-7.img", "core-9.img", "seccomp.img"}
    assert written["seccomp.img"] == [{"seccomp_filters": [{"filter": "ZmlsdGVy", "flags": 0}]}]
    for core in (written["core-7.img"][0], written["core-9.img"][0]):
        creds = core["thread_core"]["creds"]
        assert all(creds[name] == [0, 0] for name in ("cap_prm", "cap_eff", "cap_inh", "cap_bnd"))
        assert creds["uid"] == 1000 and creds["no_new_privs"] == 1
        assert core["thread_core"]["seccomp_mode"] == "filter" and core["thread_core"]["seccomp_filter"] == 0
    assert "oom_score_adj" not in written["core-7.img"][0]["tc"]
    assert "pdeath_sig" not in written["core-7.img"][0]["thread_core"]
    links = {path.name: str(path.readlink()) for path in into.iterdir() if path.is_symlink()}
    assert links == {name: f"/capsule/checkpoint/{name}" for name in ("pages-1.img", "ghost-file-2.img", "stats-dump")}
    assert (into / "files.img").is_file() and not (into / "copies").exists()
    assert not (into / "dump.log").exists()


def test_what_is_restored_is_what_was_checked(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where somebody else may write to the capsule meanwhile: what was checked is a copy."""
    checked: list[Path] = []
    monkeypatch.setattr(images, "check_images", lambda criu, copies, contents: checked.append(copies))
    monkeypatch.setattr(images, "edit_image", lambda criu, source, target, entries: checked.append(source.parent))
    monkeypatch.setattr(images, "write_image", lambda *_: None)
    (folder / "files.img").write_bytes(b"as checked")
    into = tmp_path / "prepared"
    images.prepare_restore(CRIU, folder, into, seen_as=PurePosixPath("/capsule"), seccomp=b"")
    assert set(checked) == {into / "copies"}
    (folder / "files.img").write_bytes(b"changed later")
    assert (into / "files.img").read_bytes() == b"as checked"


@pytest.mark.parametrize("name", ["files.img", "core-7.img"])
def test_an_image_that_is_a_link_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to("/etc/passwd")
    with pytest.raises(CapsuleError, match="not a regular file"):
        images.prepare_restore(CRIU, folder, tmp_path / "prepared", seen_as=PurePosixPath("/capsule"), seccomp=b"")
    assert not (tmp_path / "prepared").exists()


def test_no_file_of_this_machine_is_watched(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """criu finds it by the kernel's handle, which a capsule may choose."""
    watch = {
        "id": 21,
        "i_ino": 2,
        "mask": 0xFFF,
        "s_dev": 1,
        "wd": 1,
        "f_handle": {"bytes": 8, "type": 1, "handle": [2, 0]},
    }
    watching = {"id": 21, "type": "INOTIFY", "ify": {"id": 21, "flags": 0, "fown": {}, "wd": [watch]}}
    give(monkeypatch, {**IMAGE, "files.img": [*IMAGE["files.img"], watching]})
    written: dict[str, list[dict[str, Any]]] = {}
    monkeypatch.setattr(
        images, "edit_image", lambda criu, source, target, entries: written.update({target.name: entries})
    )
    monkeypatch.setattr(images, "write_image", lambda *_: None)
    images.prepare_restore(CRIU, folder, tmp_path / "prepared", seen_as=PurePosixPath("/capsule"), seccomp=b"filter")
    assert written["files.img"][:-1] == IMAGE["files.img"]
    assert written["files.img"][-1]["ify"] == {"id": 21, "flags": 0, "fown": {}, "wd": []}


def test_a_relative_place_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="absolute"):
        images.prepare_restore(CRIU, folder, tmp_path / "prepared", seen_as=PurePosixPath("capsule"), seccomp=b"")


def test_an_image_without_credentials_is_damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {**IMAGE, "core-7.img": [{"thread_core": {}}]}
    give(monkeypatch, broken)
    with pytest.raises(CapsuleError, match="lacks creds"):
        images.read(CRIU, folder)


def test_descriptors_that_no_restore_opens_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of processes that are not in the image, and those for which the capsule would be refused."""
    paths = {
        21: "/proc/4242/stat",
        22: "/proc/7/stat",
        23: "/proc/meminfo",
        26: "/proc/locks",
        24: "/proc/9/maps",
        25: "/proc/kcore",
    }
    image: dict[str, list[dict[str, Any]]] = {
        "pstree.img": IMAGE["pstree.img"],
        "ids-7.img": [{"files_id": 2}],
        "fdinfo-2.img": [{"fd": number, "id": number} for number in paths],
        "files.img": [regular(number, path) for number, path in paths.items()],
    }
    for name in image:
        (tmp_path / name).touch()
    give(monkeypatch, image)
    found = [str(each) for each in images.unrestorable(CRIU, tmp_path)]
    assert found == ["descriptor 21 (/proc/4242/stat)", "descriptor 25 (/proc/kcore)"]


ASKS_FOR_MORE: dict[str, dict[str, list[dict[str, Any]]]] = {
    "another namespace": {"ids-7.img": [{"files_id": 2, "mnt_ns_id": 9}]},
    "mountpoints-9.img": {"mountpoints-9.img": []},
    "cgroup.img": {"cgroup.img": []},
    "netns-2.img": {"netns-2.img": []},
    "inotify-wd.img": {"inotify-wd.img": []},
    "fanotify-mark.img": {"fanotify-mark.img": []},
    "ext-files.img": {"ext-files.img": []},
    "a lease of a file": {"filelocks.img": [{"flag": 2}, {"flag": 8}]},
    "unheard-of.img": {"unheard-of.img": []},
    "device file": {"ghost-file-1.img": [{"mode": 0o060600, "rdev": 0xFE00}]},
    "or a link": {"ghost-file-1.img": [{"mode": 0o120777}]},
    "/proc/1/mem": {"files.img": [regular(1, "/proc/1/mem", flags=2)]},
    "/proc/1/maps": {"files.img": [regular(1, "/proc/1/maps")]},
    "/proc/1/root": {"files.img": [regular(1, "/proc/1/root", mode=0o040755)]},
    "core_pattern": {"files.img": [regular(1, "/proc/sys/kernel/core_pattern", flags=1)]},
    "/proc/self/stat": {"files.img": [regular(1, "/proc/self/stat", flags=1)]},
    "/dev/vda": {"files.img": [regular(1, "/dev/vda", flags=2)]},
    "names the file": {"files.img": [regular(1, "/a/../proc/1/mem", flags=2)]},
    "names the file '/./proc/1/fd/9'": {"files.img": [regular(1, "/./proc/1/fd/9", mode=0o040700)]},
    "names the file '/proc/./1/maps'": {"files.img": [regular(1, "/proc/./1/maps")]},
    "names the file '/tmp/'": {"files.img": [regular(1, "/tmp/", mode=0o040700)]},
    "names the file '/./proc/1/fd/8'": {
        "files.img": [{"id": 1, "type": "UNIXSK", "usk": {"name": "s=00", "name_dir": "/./proc/1/fd/8"}}]
    },
    "/proc/1/fd/5 open": {
        "files.img": [{"id": 1, "type": "UNIXSK", "usk": {"name": "s=00", "name_dir": "/proc/1/fd/5"}}]
    },
    "/proc/1/fd/6": {"files.img": [{"id": 1, "type": "UNIXSK", "usk": {"name": "/proc/1/fd/6/spec.json=00"}}]},
    "names the file '/a/../s'": {"files.img": [{"id": 1, "type": "UNIXSK", "usk": {"name": "/a/../s=00"}}]},
    "'TUNF'": {"files.img": [{"id": 1, "type": "TUNF"}]},
    "'NS'": {"files.img": [{"id": 1, "type": "NS"}]},
}


@pytest.mark.parametrize("word", ASKS_FOR_MORE)
def test_images_that_ask_criu_for_more_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """criu would do it with more privileges than the rank has, outside of what confines the rank."""
    for name in ASKS_FOR_MORE[word]:
        (folder / name).touch()
    give(monkeypatch, {**IMAGE, **ASKS_FOR_MORE[word]})
    with pytest.raises(CapsuleError, match=word):
        images.prepare_restore(
            CRIU, folder, tmp_path / "prepared", seen_as=PurePosixPath("/capsule/checkpoint"), seccomp=b""
        )
    assert not (tmp_path / "prepared").exists()


@pytest.mark.parametrize("name", ["core-7.img", "mm-7.img", "pagemap-7.img", "fs-7.img"])
def test_a_process_without_its_memory_is_refused(folder: Path, name: str) -> None:
    """CRIU would crash, or wait."""
    (folder / name).unlink()
    with pytest.raises(CapsuleError, match=f"lacks {name}"):
        images.require_restorable(CRIU, folder)


def test_mappings_that_overlap_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CRIU would crash over them."""
    areas = [area(1, 65, 5), {**area(1, 1, 2), "end": 9 << 12}]
    give(monkeypatch, {**IMAGE, "mm-7.img": [{"exe_file_id": 1, "vmas": areas}]})
    with pytest.raises(CapsuleError, match=r"mappings that overlap \(mm-7.img\)"):
        images.require_restorable(CRIU, folder)
