"""Folders and files by address: what comes back is what was written, and nothing else."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.jobs.storage.job_nodes import node_states
from prismdbg.jobs.storage.remote import fetched_cache, object_store, upload
from prismdbg.jobs.storage.remote.object_store import LISTED, UPLOAD, Address, fetch
from prismdbg.jobs.storage.remote.upload import push
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.meanwhile import looked_on_by

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fetched"


@pytest.fixture(params=["memory", "file"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    if request.param == "memory":
        memory = fsspec.filesystem("memory")
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]
    return Address(f"memory://bucket/{tmp_path.name}" if request.param == "memory" else f"file://{tmp_path}/store/run")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "ranks" / "0").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "ranks" / "0" / "events.00000.seg").write_bytes(bytes(1000))
    (folder / "memory" / "1.2").mkdir(parents=True)
    (folder / "memory" / "1.2" / "memory.00000.seg").write_bytes(b"m")
    (folder / "ranks" / "0" / "memory").symlink_to("../../memory/1.2")
    (folder / "away").symlink_to("/etc/passwd")
    return folder


def put(address: Address, name: str, data: bytes) -> None:
    with fsspec.open(f"{address.text}/{name}", "wb", auto_mkdir=True) as file:
        file.write(data)


def said(_: str) -> None:
    """Nobody listens."""


def test_how_far_it_is_is_told_by_bytes(address: Address, folder: Path) -> None:
    told: list[str] = []
    with looked_on_by(SimpleNamespace(show=told.append, over=lambda: None)):
        push(folder, address, said)
        assert told[2] == "reading run: 1003 B of 1003 B"
        assert told[-1] == f"writing {address.text}: 1003 B of 1003 B" and len(told) == 6
        fetch(address, said)
    whole = told[-1].rpartition(" of ")[2]
    assert told[-1] == f"fetching {address.text}: {whole} of {whole}" and len(told) == 10, "with the list of files"


def test_what_was_written_comes_back(address: Address, folder: Path) -> None:
    push(folder, address, said)
    found = fetch(address, said)
    assert (found / "run.json").read_text() == "{}" and not (found / LISTED).exists()
    assert (found / "ranks" / "0" / "memory" / "memory.00000.seg").read_bytes() == b"m"
    assert not (found / "away").is_symlink(), "what leads out of it is not written"
    assert found.parent.stat().st_mode & 0o077 == 0
    lines: list[str] = []
    assert fetch(address, lines.append) == found and not lines, "once"
    (found / "run.json").write_text("{ }")
    assert (fetch(address, lines.append) / "run.json").read_text() == "{}" and lines, "an altered copy is none"
    with pytest.raises(UsageError, match="already exists"):
        push(folder, address, said)


def test_a_node_that_was_lost_before_the_upload_is_lost_in_the_copy(address: Address, folder: Path) -> None:
    """When its heart beat last, and when its ranks recorded, are times of files."""
    write_node(folder, silent_s=86_400.0)
    push(folder, address, said)
    (found,) = node_states(RunFolder(fetch(address, said)))
    assert found.is_lost and not found.goes_on and (found.silent_s or 0.0) > 3600
    assert (found.recorded_s or 0.0) == pytest.approx(600, abs=60)


def write_node(folder: Path, *, silent_s: float) -> None:
    """One of a job of several; its rank recorded 10 minutes ago."""
    (folder / "nodes" / "n2").mkdir(parents=True)
    (folder / "nodes" / "job.json").write_text('{"id": "x"}')
    (folder / "nodes" / "n2" / "node.json").write_text("{}")
    (folder / "nodes" / "n2" / "supervisor.json").write_text('{"problems": []}')
    (folder / "nodes" / "n2.beat.json").write_text('{"beat": 3}')
    (folder / "ranks" / "0" / "rank.json").write_text('{"rank": 0, "pid": 1, "node": "n2"}')
    for name, age_s in (("nodes/n2.beat.json", silent_s), ("ranks/0/events.00000.seg", 600.0)):
        os.utime(folder / name, (time.time() - age_s,) * 2)


def test_a_list_without_times_is_of_an_older_upload(address: Address) -> None:
    put(address, "a", b"a")
    about = {"size": 1, "sha256": hashlib.sha256(b"a").hexdigest()}
    put(address, LISTED, json.dumps({"files": {"a": about}, "links": {}}).encode())
    assert (fetch(address, said) / "a").read_bytes() == b"a"


@pytest.mark.parametrize("time_ns", [-1, 1 << 63, 1.5, "now"])
def test_a_time_that_is_none_is_one_error(time_ns: object, address: Address) -> None:
    put(address, "a", b"a")
    about = {"size": 1, "sha256": hashlib.sha256(b"a").hexdigest(), "mtime_ns": time_ns}
    put(address, LISTED, json.dumps({"files": {"a": about}, "links": {}}).encode())
    with pytest.raises(CapsuleError):
        fetch(address, said)


def test_a_file_from_before_all_times_comes_back(address: Address, folder: Path) -> None:
    os.utime(folder / "run.json", (-86_400, -86_400))
    push(folder, address, said)
    assert (fetch(address, said) / "run.json").stat().st_mtime == 0


@pytest.mark.parametrize("is_older", [False, True])
def test_an_upload_goes_on_though_times_have_changed(is_older: bool, address: Address, folder: Path) -> None:
    interrupt(folder, address, 2)
    if is_older:
        system, root = fsspec.core.url_to_fs(address.text)
        mark = json.loads(system.cat_file(f"{root}/{UPLOAD}"))
        for about in mark["files"].values():
            about.pop("mtime_ns", None)
        put(address, UPLOAD, json.dumps(mark).encode())
    for path in folder.rglob("*.*"):
        os.utime(path, (1000, 1000))
    with interrupted_after(99) as put_now:
        push(folder, address, said)
    assert len(put_now) == 1 and (fetch(address, said) / "run.json").stat().st_mtime == 1000


def test_no_more_is_fetched_than_was_listed(address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(address, "a", b"small")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def listed(_: Address, __: str) -> None:
        put(address, "a", bytes(8 << 20))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))  # a larger file is an error of the system

    monkeypatch.setattr(object_store, "_require_plain", listed)
    try:
        with pytest.raises(CapsuleError, match="a changed while it was fetched"):
            fetch(address, said)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_file_is_fetched_in_parts(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", 10)
    for size in (0, 9, 10, 11, 20, 25):
        put(address, str(size), bytes(range(size)))
    found = fetch(address, said)
    assert all(path.read_bytes() == bytes(range(int(path.name))) for path in found.iterdir())


@pytest.mark.parametrize("to", ["secret", "folder", "missing"])
def test_a_link_in_a_folder_by_address_is_refused(tmp_path: Path, cache: Path, to: str) -> None:
    (tmp_path / "secret").write_text("of the user")
    (tmp_path / "folder").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "run.json").write_text("{}")
    (tmp_path / "store" / "x").symlink_to(tmp_path / to)
    with pytest.raises(CapsuleError, match="x is not a regular file"):
        fetch(Address(f"file://{tmp_path}/store"), said)
    assert not cache.exists() or not [path for path in cache.rglob("*") if path.is_file()]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A RUN that `record --memory` wrote, as another machine sees it."""
    store = tmp_path / "store"
    (store / "memory" / "1").mkdir(parents=True)
    (store / "memory" / "1" / "x").write_text("trace")
    (store / "ranks" / "0").mkdir(parents=True)
    (store / "ranks" / "0" / "memory").symlink_to("../../memory/1")
    (store / "ranks" / "0" / "x").symlink_to("../../memory/1/x")
    return store


def test_a_link_that_leads_inside_is_kept(tmp_path: Path, recorded: Path) -> None:
    address = Address(f"file://{recorded}")
    (tmp_path / "named").symlink_to("store")  # the user's own name may be a link
    for found in (fetch(address, said), fetch(Address(f"file://{tmp_path}/named"), said)):
        for name, to in (("memory", "../../memory/1"), ("x", "../../memory/1/x")):
            assert str((found / "ranks" / "0" / name).readlink()) == to
        assert (found / "ranks" / "0" / "memory" / "x").read_text() == (found / "ranks/0/x").read_text() == "trace"
    first = fetch(address, said)
    (recorded / "ranks" / "0" / "x").unlink()
    (recorded / "ranks" / "0" / "x").symlink_to("../../memory/../memory/1/x")
    assert fetch(address, said) != first, "it leads elsewhere, which is another content"


@pytest.mark.parametrize("to", ["../secret", "none", "x", "ranks/0/memory/../../../secret"])
def test_a_relative_link_that_leads_out_or_nowhere_is_refused(
    tmp_path: Path, recorded: Path, cache: Path, to: str
) -> None:
    (tmp_path / "secret").write_text("of the user")
    (recorded / "x").symlink_to(to)
    with pytest.raises(CapsuleError, match="x leads out of it, or nowhere"):
        fetch(Address(f"file://{recorded}"), said)
    assert not cache.exists() or not [path for path in cache.rglob("*") if path.is_file()]


def test_a_link_put_in_place_of_a_listed_file_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "real").mkdir()
    (tmp_path / "store").symlink_to("real")
    (tmp_path / "real" / "x").write_text("{}")

    def listed(_: Address, __: str) -> None:
        (tmp_path / "real" / "x").unlink()
        (tmp_path / "real" / "x").symlink_to(tmp_path / "secret")

    assert fetch(Address(f"file://{tmp_path}/store"), said), "the user's own name may be a link"
    monkeypatch.setattr(object_store, "_require_plain", listed)
    (tmp_path / "real" / "x").write_text("[]")
    with pytest.raises(FacilityError, match="link"):
        fetch(Address(f"file://{tmp_path}/store"), said)


def test_what_changes_there_is_fetched_again(address: Address) -> None:
    put(address, "run.json", b"{}")
    first = fetch(address, said)
    put(address, "run.json", b'{"command": []}')
    assert (fetch(address, said) / "run.json").read_text() == '{"command": []}'
    assert first != fetch(address, said)


def test_a_file_is_fetched_alone(address: Address, tmp_path: Path) -> None:
    (tmp_path / "one.tar.zst").write_bytes(b"packed")
    put(address, "beside", b"")
    one = Address(f"{address.text}/one.tar.zst")
    push(tmp_path / "one.tar.zst", one, said)
    assert fetch(one, said).name == "one.tar.zst" and fetch(one, said).read_bytes() == b"packed"
    assert not (fetch(one, said).parent / "beside").exists()
    put(address, "one.tar.zst.sig", b"signature")
    assert fetch(one, said).with_name("one.tar.zst.sig").read_bytes() == b"signature"


def test_what_two_fetch_at_once_stays_where_the_first_reads_it(tmp_path: Path) -> None:
    target = fetched_cache.cache_folder() / "key" / "run"
    for fetcher in ("first", "second"):
        (tmp_path / fetcher / "run").mkdir(parents=True)
        (tmp_path / fetcher / "run" / "run.json").write_text("{}")
        fetched_cache.keep(tmp_path / fetcher, target)
        if fetcher == "first":
            read = (target / "run.json").stat().st_ino
    assert (target / "run.json").stat().st_ino == read and fetched_cache.is_whole(target)
    (target / "run.json").write_text("[]")
    fetched_cache.keep(tmp_path / "second", target)
    assert (target / "run.json").read_text() == "{}"


class Interrupted(BaseException):
    """As a signal."""


@contextmanager
def interrupted_after(files: int) -> Iterator[list[str]]:
    """What is put meanwhile, without marks."""
    put_file, names = upload._put, list[str]()

    def counted(system: Any, source: Path, target: str) -> None:
        if len(names) == files:
            raise Interrupted
        put_file(system, source, target)
        names.append(source.name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "_put", counted)
        yield names


def interrupt(folder: Path, address: Address, after: int) -> None:
    with interrupted_after(after), pytest.raises(Interrupted):
        push(folder, address, said)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_upload_that_was_interrupted_is_no_run_and_goes_on(
    after: int, address: Address, folder: Path, cache: Path
) -> None:
    interrupt(folder, address, after)
    with pytest.raises(CapsuleError, match="is not complete: its upload was interrupted"):
        fetch(address, said)
    assert not cache.exists()
    lines: list[str] = []
    with interrupted_after(99) as put_now:
        push(folder, address, lines.append)
    assert len(put_now) == 3 - after and f"{after} file" in lines[0]
    assert (fetch(address, said) / "ranks" / "0" / "events.00000.seg").read_bytes() == bytes(1000)
    system, root = fsspec.core.url_to_fs(address.text)
    assert not system.exists(f"{root}/{UPLOAD}")
    with pytest.raises(UsageError, match="already exists"):
        push(folder, address, said)


def test_what_changed_since_an_upload_was_interrupted_is_written_again(address: Address, folder: Path) -> None:
    """Also if that is interrupted before it comes to it, and though the new content is as long."""
    system, root = fsspec.core.url_to_fs(address.text)
    interrupt(folder, address, 3 - 1)
    put_first = {path.removeprefix(f"{root}/") for path in system.find(root)} - {UPLOAD}
    assert "memory/1.2/memory.00000.seg" in put_first and "ranks/0/events.00000.seg" in put_first
    (folder / "ranks" / "0" / "events.00000.seg").write_bytes(b"x" * 1000)
    (folder / "memory" / "1.2" / "memory.00000.seg").unlink()
    interrupt(folder, address, 0)
    push(folder, address, said)
    found = fetch(address, said)
    assert (found / "ranks" / "0" / "events.00000.seg").read_bytes() == b"x" * 1000
    assert not list(found.glob("memory/*/memory.*"))


def test_a_file_that_was_put_in_half_is_put_again(address: Address, folder: Path) -> None:
    interrupt(folder, address, 2)
    put(address, "ranks/0/events.00000.seg", bytes(999))
    push(folder, address, said)
    assert (fetch(address, said) / "ranks" / "0" / "events.00000.seg").read_bytes() == bytes(1000)


def test_what_others_put_there_is_never_replaced(address: Address, folder: Path) -> None:
    interrupt(folder, address, 1)
    put(address, "notes.txt", b"mine")
    with pytest.raises(UsageError, match=r"notes\.txt is of no interrupted upload"):
        push(folder, address, said)
    other = Address(f"{address.text}-other")
    put(other, "run.json", b"{}")
    with pytest.raises(UsageError, match="already exists"):
        push(folder, other, said)
    assert (fetch(other, said) / "run.json").read_text() == "{}"


def test_of_two_uploads_at_once_one_completes(address: Address, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_file = upload._put

    def other_first(system: Any, source: Path, target: str) -> None:
        monkeypatch.setattr(upload, "_put", put_file)
        interrupt(folder, address, 1)
        put_file(system, source, target)

    monkeypatch.setattr(upload, "_put", other_first)
    with pytest.raises(UsageError, match="another upload"):
        push(folder, address, said)
    with pytest.raises(CapsuleError, match="is not complete"):
        fetch(address, said)


def test_a_run_that_changes_while_it_is_uploaded_is_not_complete(address: Address, folder: Path) -> None:
    put_file = upload._put

    def grows(system: Any, source: Path, target: str) -> None:
        put_file(system, source, target)
        if source.name == "run.json":
            source.write_text("{   }")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CapsuleError, match="changed while it was uploaded"):
        patch.setattr(upload, "_put", grows)
        push(folder, address, said)
    with pytest.raises(CapsuleError, match="is not complete"):
        fetch(address, said)
    push(folder, address, said)
    assert (fetch(address, said) / "run.json").read_text() == "{   }"


def test_a_mark_that_may_not_be_removed_says_nothing(
    address: Address, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, _ = fsspec.core.url_to_fs(address.text)

    def refused(*_: object) -> None:
        raise PermissionError("AccessDenied")

    monkeypatch.setattr(type(system), "rm_file", refused)
    push(folder, address, said)
    assert (fetch(address, said) / "run.json").is_file() and not (fetch(address, said) / UPLOAD).exists()
    with pytest.raises(UsageError, match=r"already exists$"):
        push(folder, address, said)


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.tar.zst").write_bytes(b"packed")
    one = Address(f"file://{tmp_path}/store/one.tar.zst")
    system, _ = fsspec.core.url_to_fs(one.text)

    def half(_system: object, _source: str, target: str) -> None:
        Path(target).write_bytes(b"pac")
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(type(system), "put_file", half)
        push(tmp_path / "one.tar.zst", one, said)
    push(tmp_path / "one.tar.zst", one, said)
    assert fetch(one, said).read_bytes() == b"packed" and len(list((tmp_path / "store").iterdir())) == 1


@pytest.mark.parametrize("harm", ["altered", "missing"])
def test_a_folder_that_was_altered_is_refused(harm: str, address: Address, folder: Path, cache: Path) -> None:
    push(folder, address, said)
    if harm == "altered":
        put(address, "run.json", b"[]")
    else:
        system, root = fsspec.core.url_to_fs(address.text)
        system.rm_file(f"{root}/run.json")
    with pytest.raises(CapsuleError, match=r"run\.json is missing, or not what was written"):
        fetch(address, said)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("to", ["/etc/passwd", "../../../../etc/passwd"])
def test_a_link_that_leads_out_is_refused(to: str, address: Address) -> None:
    put(address, "run.json", b"{}")
    put(address, LISTED, json.dumps({"files": {}, "links": {"ranks": to}}).encode())
    with pytest.raises(CapsuleError, match="leads out of it"):
        fetch(address, said)


DEEP = "a/b/c/d/e/f"


@pytest.mark.parametrize(
    "links",
    [
        {f"{DEEP}/l": "k/" + "../" * 6 + "{away}", f"{DEEP}/k": "../../../../../../z"},  # through a later one
        {"out": "z/../../../../../../../../../../../../../../../../tmp", "out/l": "z"},  # made elsewhere
        {"x": "z/none"},
        {"x": "y", "y": "x"},
    ],
)
def test_links_that_lead_out_together_are_refused(
    address: Address, links: dict[str, str], tmp_path: Path, cache: Path
) -> None:
    away = tmp_path / "away"
    away.mkdir()
    put(address, "z/file", b"x")
    put(address, "a/b/c/d/e/f/file", b"x")
    up = "../" * 40 + str(away)[1:]
    listed = {name: to.format(away=up) for name, to in links.items()}
    put(address, LISTED, json.dumps({"files": {}, "links": listed}).encode())
    with pytest.raises(CapsuleError, match="leads out of it, or nowhere"):
        fetch(address, said)
    assert list(cache.iterdir()) == [] and list(away.iterdir()) == []


@pytest.mark.parametrize("listed", [b"[]", b"{", b'{"files": {"a": {"size": -1, "sha256": ""}}, "links": {}}'])
def test_a_damaged_list_is_one_error(listed: bytes, address: Address) -> None:
    put(address, "a", b"")
    put(address, LISTED, listed)
    with pytest.raises(CapsuleError):
        fetch(address, said)


@pytest.mark.parametrize("name", ["../out", "a/../../out", "a\0", "a//b", ""])
def test_a_name_that_leads_out_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hostile:
        def isfile(self, _: str) -> bool:
            return False

        def find(self, root: str, *, detail: bool) -> dict[str, Any]:
            return {f"{root}/{name}": {"size": 1, "ETag": "x"}, f"{root}/b": {"size": 1}}

    monkeypatch.setattr("fsspec.core.url_to_fs", lambda *_, **__: (Hostile(), "bucket/run"))
    with pytest.raises(CapsuleError, match="of the name"):
        fetch(Address("s3://bucket/run"), said)


def test_what_does_not_fit_on_the_disk_is_refused(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    put(address, "a", bytes(100))
    monkeypatch.setattr(fetched_cache, "FREE_LEFT_BYTES", 1 << 60)
    with pytest.raises(FacilityError, match="has room for 0"):
        fetch(address, said)


def test_an_address_is_told_from_a_path() -> None:
    assert Address.of("runs/one") is None and Address.of("host:/runs/one") is None
    assert Address.of("s3://bucket/one") == Address("s3://bucket/one")
    for text in ("http://host/one", "s3://", "file:///"):
        with pytest.raises(UsageError, match="not a supported address"):
            Address.of(text)


def test_where_nothing_is_the_error_says_so(address: Address) -> None:
    with pytest.raises(UsageError, match="nothing is at"):
        fetch(address, said)


@contextmanager
def another_process(fetched: Path) -> Iterator[None]:
    """One that has fetched it. It ends when this does."""
    program = (
        "import sys; from pathlib import Path; from prismdbg.jobs.storage.remote import fetched_cache; "
        "print(fetched_cache.hold(Path(sys.argv[1])), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(fetched)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "True\n"
        yield
        process.stdin.close()


def test_what_another_process_reads_is_kept(address: Address, cache: Path) -> None:
    put(address, "a", b"read")
    read = fetch(address, said)
    with another_process(read):
        for number in range(fetched_cache.KEPT + 3):
            put(address, "a", bytes(number + 1))
            fetch(address, said)
        assert (read / "a").read_bytes() == b"read"
        assert len(list(cache.iterdir())) == fetched_cache.KEPT + 1
    put(address, "a", b"last")
    fetch(address, said)
    assert not read.exists() and len(list(cache.iterdir())) == fetched_cache.KEPT


def test_a_copy_that_is_removed_meanwhile_is_none_and_no_error(
    address: Address, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(fetched_cache.KEPT + 1):
        (cache / f"key{number}").mkdir(parents=True)
    listed = Path.iterdir

    def raced(folder: Path) -> Iterator[Path]:
        found = list(listed(folder))
        if folder == cache:
            (cache / "key3").rmdir()
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", raced)
        fetched_cache._drop_oldest()
    assert not fetched_cache.hold(cache / "key3" / "run")
    put(address, "a", b"1")
    assert (fetch(address, said) / "a").read_bytes() == b"1"


def locked(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_a_copy_that_has_just_been_fetched_is_waited_for_and_not_removed(cache: Path, tmp_path: Path) -> None:
    """Its folder is locked for a moment after it has its name."""
    target = cache / "key" / "run"
    for fetcher in ("first", "second"):
        (tmp_path / fetcher / "run").mkdir(parents=True)
        (tmp_path / fetcher / "run" / "run.json").write_text("{}")
    cache.mkdir(parents=True)
    fetched_cache.keep(tmp_path / "first", target)
    first = (target / "run.json").stat().st_ino
    timer = threading.Timer(0.3, os.close, [locked(target.parent)])
    timer.start()
    fetched_cache.keep(tmp_path / "second", target)
    timer.join()
    assert (target / "run.json").stat().st_ino == first and fetched_cache.is_whole(target)


def test_a_copy_that_stays_locked_is_not_removed(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_cache, "BUSY_BOUND_S", 0.1)
    (tmp_path / "mine" / "run").mkdir(parents=True)
    (cache / "key" / "run").mkdir(parents=True)
    (cache / "key" / "run" / "a").write_text("read")
    descriptor = locked(cache / "key")
    try:
        with pytest.raises(FacilityError, match="cannot be replaced"):
            fetched_cache.keep(tmp_path / "mine", cache / "key" / "run")
    finally:
        os.close(descriptor)
    assert (cache / "key" / "run" / "a").read_text() == "read"
    fetched_cache.keep(tmp_path / "mine", cache / "key" / "run")
    assert not list((cache / "key" / "run").iterdir())


def test_who_removes_a_damaged_copy_leaves_the_one_that_another_process_has_put_in_its_place(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = cache / "key" / "run"
    target.mkdir(parents=True)
    for fetcher in ("first", "second"):
        (tmp_path / fetcher / "run").mkdir(parents=True)
        (tmp_path / fetcher / "run" / "run.json").write_text("{}")
    is_whole, asked = fetched_cache.is_whole, list[Path]()

    def raced(target: Path) -> bool:
        asked.append(target)
        found = is_whole(target)
        if len(asked) == 1:
            fetched_cache.keep(tmp_path / "first", target)
            (target / "of the first").touch()
        return found

    monkeypatch.setattr(fetched_cache, "is_whole", raced)
    fetched_cache.keep(tmp_path / "second", target)
    assert (target / "of the first").exists()


def test_a_new_copy_can_be_read_while_the_oldest_are_removed(
    address: Address, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have gigabytes."""
    put(address, "a", b"1")
    drop, seen = fetched_cache._drop_oldest, list[str]()

    def dropped() -> None:
        (folder,) = cache.iterdir()
        with another_process(folder / "run"):
            seen.append(folder.name)
        drop()

    monkeypatch.setattr(fetched_cache, "_drop_oldest", dropped)
    assert fetch(address, said).parent.name == seen[0]


def test_a_copy_loses_its_name_before_all_of_it_is_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(fetched_cache.KEPT + 1):
        (cache / f"key{number}").mkdir(parents=True)
        os.utime(cache / f"key{number}", (number, number))
    removed = shutil.rmtree

    def slow(path: Path, **how: Any) -> None:
        assert not (cache / "key0").exists()
        removed(path, **how)

    monkeypatch.setattr(shutil, "rmtree", slow)
    fetched_cache._drop_oldest()
    assert len(list(cache.iterdir())) == fetched_cache.KEPT and not (cache / "key0").exists()


def test_what_is_just_removed_is_not_taken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_cache, "BUSY_BOUND_S", 0.1)
    folder = cache / "key"
    folder.mkdir(parents=True)
    descriptor = locked(folder)
    try:
        assert not fetched_cache.hold(folder / "run") and not fetched_cache.is_whole(folder / "run")
    finally:
        os.close(descriptor)


def test_only_the_newest_copies_are_kept(address: Address, cache: Path) -> None:
    for number in range(fetched_cache.KEPT + 3):
        put(address, "a", bytes(number + 1))
        fetch(address, said)
    assert len(list(cache.iterdir())) == fetched_cache.KEPT
