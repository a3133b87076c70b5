"""Parts of the starter that need no namespace: laying files, choosing PIDs and streams."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from starter_parts import starter_parts
from waiting import wait_for

from prismdbg.capsule.exact_file import known
from prismdbg.runtime.limits import Limits
from prismdbg.runtime.starter_spec import starter_file

OWNER = (os.getuid(), os.getgid())


@pytest.fixture(scope="module")
def starter() -> Any:
    return starter_parts()


def file(source: Path | None, target: Path, **more: object) -> dict[str, object]:
    told: dict[str, object] = {"source": source and str(source), "target": str(target), "mode": 0o640}
    return {**told, "size_bytes": None, "mtime_ns": None, "known": None, **more}


def test_a_file_is_laid_as_it_was(starter: Any, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "new" / "folder" / "file"
    source.write_text("what it was and more")
    starter.write_file(starter.RootedTree(), file(source, target, size_bytes=11, mtime_ns=5_000_000_007), OWNER)
    assert target.read_text() == "what it was"
    assert target.stat().st_mode & 0o777 == 0o640
    assert target.stat().st_mtime_ns == 5_000_000_007


def test_one_without_content_has_only_its_length(starter: Any, tmp_path: Path) -> None:
    starter.write_file(starter.RootedTree(), file(None, tmp_path / "log", size_bytes=10 << 30), OWNER)
    status = (tmp_path / "log").stat()
    assert status.st_size == 10 << 30
    assert status.st_blocks < 100


def test_one_that_lies_there_anyway_is_not_touched(starter: Any, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("content")
    there.chmod(0o444)
    before = there.stat()
    starter.write_file(starter.RootedTree(), file(there, there), OWNER)
    assert there.stat() == before
    starter.write_file(starter.RootedTree(), file(there, there, size_bytes=3), OWNER)
    assert there.read_text() == "con"


@pytest.mark.parametrize("kind", ["another", "link", "behind a link", "fifo"])
def test_a_file_that_was_replaced_since_it_was_looked_at_is_not_laid(starter: Any, tmp_path: Path, kind: str) -> None:
    folder, secret = tmp_path / "folder", tmp_path / "secret"
    folder.mkdir()
    source = folder / "source"
    source.write_text("looked at")
    secret.write_text("of somebody else")
    told = file(source, tmp_path / "laid", known=asdict(known(str(source))))
    source.rename(tmp_path / "old")
    if kind == "another":
        source.write_text("of somebody else")
    elif kind == "link":
        source.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(source)
    else:
        (tmp_path / "old").rename(tmp_path / "source")
        folder.rmdir()
        folder.symlink_to(tmp_path)
    with pytest.raises(starter.PlaceError, match="was replaced"):
        starter.write_file(starter.RootedTree(), told, OWNER)


@pytest.mark.parametrize("path", ["/proc/sys/vm/swappiness", "/sys/power/state", "/dev/sda", "/a/../proc/x", "a"])
def test_nothing_is_laid_among_the_kernels_files(starter: Any, path: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("60")
    told = {**file(source, tmp_path), "target": path}
    with pytest.raises(starter.PlaceError):
        starter.write_file(starter.RootedTree(), told, OWNER)


def test_what_an_engine_opens_by_name_leads_to_nothing_of_the_kernel(starter: Any, tmp_path: Path) -> None:
    """Also through links that the machine has, and where nothing is there yet."""
    held = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "inside").mkdir()
    links = {"magic": f"/proc/self/fd/{held}", "text": "/proc/self/comm", "view": "/sys", "later": "/proc/4194303/fd"}
    try:
        for name, target in links.items():
            (tmp_path / name).symlink_to(target)
        (tmp_path / "plain").symlink_to("inside")
        starter.require_own([str(tmp_path / name) for name in ("inside", "plain", "plain/not/there", "not/there")])
        hostile = ("magic", "magic/inside", "magic/not/there", "text", "view/kernel", "later", "later/5")
        for path in [
            *(str(tmp_path / name) for name in hostile),
            "/proc/1/fd/9",
            f"/.{tmp_path}",
            f"{tmp_path}/./inside",
        ]:
            with pytest.raises(starter.PlaceError):
                starter.require_own([path])
    finally:
        os.close(held)


def test_a_link_leads_nowhere_but_beneath_the_root(starter: Any, tmp_path: Path) -> None:
    root, source = tmp_path / "root", tmp_path / "source"
    root.mkdir()
    source.write_text("laid")
    (root / "out").symlink_to(tmp_path)
    (root / "up").symlink_to("../../..")
    tree = starter.RootedTree(root)
    starter.write_file(tree, {**file(source, tmp_path), "target": "/up/here"}, OWNER)
    assert (root / "here").read_text() == "laid"
    with pytest.raises(OSError):
        tree.open_file("/out/file", create=True)
    starter.write_file(tree, {**file(source, tmp_path), "target": "/up/deep/er"}, OWNER)
    assert (root / "deep" / "er").read_text() == "laid"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "source"]


def test_no_file_is_reached_through_proc(starter: Any, tmp_path: Path) -> None:
    """By a link that another program made: the kernel's own links are not followed, its files not written."""
    held = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "magic").symlink_to(f"/proc/self/fd/{held}")
    (tmp_path / "setting").symlink_to("/proc/self/comm")
    try:
        with pytest.raises(OSError):
            starter.RootedTree().open_file(str(tmp_path / "magic" / "file"), create=True)
        with pytest.raises((OSError, starter.PlaceError)):
            starter.RootedTree().open_file(str(tmp_path / "setting"))
    finally:
        os.close(held)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["magic", "setting"]


@pytest.mark.parametrize(
    ("hard", "is_enough"), [(100, True), (50, True), (200, False), (resource.RLIM_INFINITY, False)]
)
def test_a_restored_process_that_could_take_more_does_not_run(
    starter: Any, monkeypatch: pytest.MonkeyPatch, hard: int, is_enough: bool
) -> None:
    def prlimit(pid: int, kind: int, new: tuple[int, int] | None = None) -> tuple[int, int]:
        if pid == 8:
            raise ProcessLookupError("it has ended")
        if new is not None:
            raise PermissionError("not permitted")
        return hard, hard

    monkeypatch.setattr(resource, "prlimit", prlimit)
    spec = {"limits": {"disk_bytes": 100, "events": [], "in_container": True}}
    with contextlib.nullcontext() if is_enough else pytest.raises(PermissionError):
        starter.limit_restored(spec, [8, 7])


@pytest.mark.parametrize("shared", [1 << 30, 100 << 20])
def test_without_a_group_memory_file_systems_are_no_larger_together_than_the_limit(starter: Any, shared: int) -> None:
    most = Limits(memory_bytes=1 << 30, processes=1, shared_bytes=shared, disk_bytes=1).without_group()
    limits = {"memory_bytes": most.memory_bytes, "shared_bytes": most.shared_bytes, "events": []}
    layers, root = starter.layer_and_root_bytes(limits)
    assert layers + root + most.shared_bytes == most.memory_bytes and most.shared_bytes == min(shared, 1 << 29)
    assert root > layers > 100 << 20
    assert starter.layer_and_root_bytes({**limits, "events": ["of the group"]}) == (1 << 30, 1 << 30)


def test_a_full_root_is_the_limit_of_memory_which_gives_it_its_size(
    starter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[starter.Met.__module__], "is_full", lambda path: path == "/")
    met = starter.Met({"isolation": "namespaces", "scratch": "/s", "limits": {"events": [], "in_container": False}})
    assert met.names(1) == ["memory"]


@pytest.mark.parametrize(("scratch", "names"), [("/s", ["memory"]), ("/other", [])])
def test_full_layers_are_the_limit_of_memory_too(
    starter: Any, monkeypatch: pytest.MonkeyPatch, scratch: str, names: list[str]
) -> None:
    """Of other overlays, as of the machine's own disk, a full one says nothing."""
    layer = starter.Mount(
        "/usr", "overlay", "rw,lowerdir=/proc/self/fd/3,upperdir=/s/layer0/upper,workdir=/s/layer0/work"
    )
    limits = sys.modules[starter.Met.__module__]
    monkeypatch.setattr(limits, "mounts", lambda: [layer])
    monkeypatch.setattr(limits, "is_full", lambda path: path == "/usr")
    met = starter.Met({"isolation": "namespaces", "scratch": scratch, "limits": {"events": [], "in_container": False}})
    assert met.names(1) == names


@contextmanager
def as_an_owner_without_rights() -> Iterator[None]:
    """As the starter in a container: root's way past the modes of files is gone."""
    me = os.geteuid()
    try:
        if me == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(me)


@pytest.mark.parametrize("mode", [0o700, 0o000, 0o400, 0o100])
@pytest.mark.parametrize("name", ["folder", "folder/inner"])
def test_a_folder_that_the_rank_closes_is_no_place_to_hide(starter: Any, tmp_path: Path, mode: int, name: str) -> None:
    inner = tmp_path / "folder" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_bytes(bytes(1 << 20))
    for path in (inner.parent, inner, inner / "file"):
        os.chown(path, 65534 if os.geteuid() == 0 else -1, -1)
    opened = os.open(tmp_path / "folder", os.O_RDONLY)
    (tmp_path / name).chmod(mode)
    with as_an_owner_without_rights():
        used = starter.used_bytes(opened)
    os.close(opened)
    assert used >= 1 << 62 if mode != 0o700 else 1 << 20 <= used < 2 << 20


def test_pid_1_cannot_be_given_again(starter: Any) -> None:
    if os.geteuid() != 0:
        pytest.skip("the kernel's last PID is written by root")
    with pytest.raises(starter.PlaceError, match="PID 1"):
        starter.Criu([]).keep_clear_of([1, 7])


def test_streams_are_replaced_once_each(starter: Any, tmp_path: Path) -> None:
    standards = [(0, "dev/null"), (1, "pipe:[7]"), (2, "pipe:[7]")]
    streams = starter.standard_streams(standards, starter.hold_output(str(tmp_path / "output")))
    try:
        assert list(streams) == ["pipe:[7]"]
        os.write(streams["pipe:[7]"], b"said")
        assert (tmp_path / "output").read_text() == "said"
    finally:
        for number in streams.values():
            os.close(number)


def test_what_was_printed_to_a_terminal_is_in_the_file_when_it_has_settled(starter: Any, tmp_path: Path) -> None:
    """As a checkpoint is taken: the kernel and the copier may still have it. No trace of the question is left."""
    output = tmp_path / "output"
    theirs = starter.standard_streams([(1, "tty[8800:3]")], starter.hold_output(str(output)))["tty[8800:3]"]
    told = ""
    for number in range(300):
        os.write(theirs, f"counted to {number}\n".encode())
        told += f"counted to {number}\n"
        starter.settle_output()
        assert output.read_text() == told
    os.write(theirs, b"the last")
    os.close(theirs)
    starter.end_output()
    assert output.read_text() == f"{told}the last"


def test_a_rank_that_gave_its_terminal_up_is_saved_all_the_same(starter: Any, tmp_path: Path) -> None:
    output = tmp_path / "output"
    theirs = starter.standard_streams([(1, "tty[8800:3]")], starter.hold_output(str(output)))["tty[8800:3]"]
    os.write(theirs, b"the last")
    os.close(theirs)
    wait_for(lambda: output.read_text() == "the last", 20, "what was printed")
    for _ in range(2):
        starter.settle_output()
    starter.end_output()


def test_standard_input_reads_nothing(starter: Any, tmp_path: Path) -> None:
    streams = starter.standard_streams(
        [(0, "pipe:[3]"), (1, "home/log")], starter.hold_output(str(tmp_path / "output"))
    )
    try:
        assert os.read(streams["pipe:[3]"], 1) == b""
        assert len(set(streams.values())) == 2
    finally:
        for number in streams.values():
            os.close(number)


def test_which_mounts_are_taken_over(starter: Any) -> None:
    points = starter.mount_points()
    assert points["/"] is True
    assert points["/proc"] is False
    assert not any(taken for point, taken in points.items() if point.startswith(("/proc/", "/sys/", "/dev/")))


def test_an_event_is_one_line(starter: Any, tmp_path: Path) -> None:
    report = starter.Reporter(tmp_path / "status")
    report("starting", pid=3)
    report("failed", what="two\nlines")
    assert (tmp_path / "status").read_text().count("\n") == 2


def test_a_client_that_died_before_the_starter_looked_is_gone(starter: Any, tmp_path: Path) -> None:
    """Such a FIFO never hangs up: nobody was there when it was opened."""
    path = tmp_path / "lifeline"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert starter.nobody_holds(reading)
        held = os.open(path, os.O_RDWR)
        assert not starter.nobody_holds(reading)
        os.close(held)
        assert starter.nobody_holds(reading)
    finally:
        os.close(reading)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")
def test_the_first_process_gives_up_what_is_not_needed() -> None:
    """Among it what reaches the kernel and its devices: no module is loaded, no device made, nothing mapped raw."""
    program = "import confine\nconfine.keep_only_needed()\nprint(open('/proc/self/status').read())"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(starter_file().parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    held = {
        name: int(bits, 16) for name, bits in re.findall(r"^Cap(Prm|Eff|Bnd|Amb):\s*(\w+)$", ran.stdout, re.MULTILINE)
    }
    kept = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 18, 19, 21, 24, 25, 40]  # not: SYS_MODULE 16, SYS_RAWIO 17, MKNOD 27
    assert held["Amb"] == 0 and held["Eff"] == held["Prm"]
    assert (held["Eff"] | held["Bnd"]) & ~sum(1 << number for number in kept) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes mounts")
def test_nobody_writes_through_what_the_engine_has_open(tmp_path: Path) -> None:
    """Its libraries, which programs outside of the place load as well."""
    (tmp_path / "library").write_text("what is loaded\n")
    does = 'read line < "$0/library"; echo "$line"; echo other > "$0/library"; echo new > "$0/new"'
    code = f"from criu import Criu\nCriu(['/bin/sh', '-c', {does!r}, {str(tmp_path)!r}]).run('restore', []).wait()"
    ran = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(starter_file().parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stderr.startswith("what is loaded\n") and ran.stderr.count("Read-only file system") == 2, ran.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ["what is loaded\n"]


MIRRORS = """
import itertools, json, os, sys
from pathlib import Path
sys.path.append("{parts}")
import place
from rooted_tree import RootedTree
from syscalls import mount
folder, scratch = Path("{folder}"), Path("{scratch}")
mount("tmpfs", str(folder / "mounted"), "tmpfs")
(folder / "mounted" / "inner").write_text("on a mount")
mount("tmpfs", str(scratch), "tmpfs")
(scratch / "root").mkdir()
status = os.stat(folder)
known = dict(path=str(folder), device=status.st_dev, inode=status.st_ino)
if {as_user}:
    os.geteuid = lambda: 1000
with RootedTree(scratch / "root") as tree:
    seen = dict(folders=[["/seen/at", known]], files=[], links=[])
    place.show(tree, seen, place.mount_points(), (scratch / f"layer{{n}}" for n in itertools.count()))
top = scratch / "root" / "seen" / "at"
print(json.dumps([sorted(path.name for path in top.iterdir()), (top / "mounted" / "inner").read_text(),
                  (top / "deep" / "file").read_text(), os.readlink(top / "link"), (top / "file").read_text()]))
"""


@pytest.mark.parametrize("as_user", [True, False])
def test_an_installation_with_mounts_in_it_is_shown_whole(tmp_path: Path, as_user: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes mounts")
    folder, scratch = tmp_path / "site-packages", tmp_path / "scratch"
    for made in (folder / "mounted", folder / "deep", scratch):
        made.mkdir(parents=True)
    (folder / "deep" / "file").write_text("deep")
    (folder / "file").write_text("a file")
    (folder / "link").symlink_to("deep/file")
    code = MIRRORS.format(parts=starter_file().parent, folder=folder, scratch=scratch, as_user=as_user)
    ran = subprocess.run(["unshare", "-m", sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [
        ["deep", "file", "link", "mounted"], "on a mount", "deep", "deep/file", "a file"
    ]  # fmt: skip
