"""What the starter is asked for images, and what it keeps of the rank's files, with neither criu nor a namespace."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starter_parts import starter_parts

from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.runtime.spec import CONTROL_FOLDER
from prismdbg.runtime.starter_control import Answer, StarterControl
from prismdbg.runtime.starter_spec import CONTROL, make_folders


@pytest.fixture(scope="module")
def starter() -> Any:
    return starter_parts()


class FakeCheckpoints:
    dump_log, restore_log = "dump.log", "restore.log"

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.bounds: list[float] = []
        self.error = error

    def save(self, name: str, least_s: float) -> dict[str, Any]:
        self.asked.append(("save", name))
        self.bounds.append(least_s)
        if self.error is not None:
            raise self.error
        return {"output_bytes": 7, "left": []}

    def return_to(self, name: str, seal: str, least_s: float) -> dict[str, Any]:
        self.asked.append(("return", name + seal))
        self.bounds.append(least_s)
        if self.error is not None:
            raise self.error
        return {"output_bytes": 3, "left": ["/a"]}


def ask(starter: Any, checkpoints: FakeCheckpoints, **request: object) -> dict[str, Any]:
    reported: list[str] = []
    answer: dict[str, Any] = starter.answer(
        json.dumps(request).encode(), checkpoints, lambda event, **_: reported.append(event)
    )
    return {**answer, "reported": reported}


def test_a_request_is_carried_out(starter: Any) -> None:
    checkpoints = FakeCheckpoints()
    assert ask(starter, checkpoints, do="save", name="1")["output_bytes"] == 7
    assert ask(starter, checkpoints, do="return", name="1", seal="s") == {
        "ok": True,
        "output_bytes": 3,
        "left": ["/a"],
        "reported": [],
    }
    assert checkpoints.asked == [("save", "1"), ("return", "1s")] and checkpoints.bounds == [0, 0]


def test_a_request_says_for_how_long_the_engine_may_run_at_least(starter: Any) -> None:
    checkpoints = FakeCheckpoints()
    assert ask(starter, checkpoints, do="save", name="1", least_s=900.5)["ok"]
    assert ask(starter, checkpoints, do="return", name="1", seal="s", least_s=700.0)["ok"]
    assert not ask(starter, checkpoints, do="save", name="1", least_s="long")["ok"]
    assert checkpoints.bounds == [900.5, 700.0]


@pytest.mark.parametrize(
    "request_",
    [{"do": "save", "name": "../1"}, {"do": "save", "name": ""}, {"do": "drop", "name": "1"}, {"do": "save"}, {}],
)
def test_a_request_that_makes_no_sense_changes_nothing(starter: Any, request_: dict[str, object]) -> None:
    checkpoints = FakeCheckpoints()
    answer = ask(starter, checkpoints, **request_)
    assert not answer["ok"] and answer["what"] and checkpoints.asked == []


@pytest.mark.parametrize("line", [b"", b"no JSON\n", b"[]\n", b"7\n"])
def test_what_is_no_request_is_answered(starter: Any, line: bytes) -> None:
    assert not starter.answer(line, FakeCheckpoints(), None)["ok"]


def test_whose_log_has_the_reason_is_said(starter: Any) -> None:
    refused = ask(starter, FakeCheckpoints(starter.DumpError("criu could not")), do="save", name="1")
    assert (refused["what"], refused["log"], refused["reported"]) == ("criu could not", "dump.log", [])
    lost = ask(starter, FakeCheckpoints(starter.RestoreError("criu could not")), do="return", name="1")
    assert (lost["log"], lost["reported"]) == ("restore.log", ["exited"])
    gone = ask(starter, FakeCheckpoints(FileNotFoundError("facts.json")), do="return", name="1")
    assert (gone["what"], gone["log"]) == ("facts.json", "")


def test_no_image_is_taken_outside_a_namespace_of_its_own(starter: Any) -> None:
    """For a return ends every process there."""
    with pytest.raises(starter.PlaceError, match="namespace"):
        starter.Checkpoints({}, None, None, None, None)


@contextmanager
def answering(session: Path, line: bytes) -> Iterator[list[bytes]]:
    """A starter that hears one request."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        make_folders(session)
        server.bind(str(session / CONTROL_FOLDER / CONTROL))
        server.listen(1)

        def serve() -> None:
            client, _ = server.accept()
            with client, client.makefile("rwb") as stream:
                heard.append(stream.readline())
                stream.write(line)

        thread = threading.Thread(target=serve)
        thread.start()
        yield heard
        thread.join(10)


def test_the_client_s_side(tmp_path: Path) -> None:
    with answering(tmp_path, b'{"ok": true, "output_bytes": 3, "left": ["/a"], "seal": "s"}\n') as heard:
        assert StarterControl(tmp_path, 1).return_to("4", "t", 700.5) == Answer(left=("/a",), seal="s")
    assert json.loads(heard[0]) == {"do": "return", "name": "4", "seal": "t", "least_s": 700.5}
    (tmp_path / CONTROL_FOLDER / CONTROL).unlink()
    (tmp_path / CONTROL_FOLDER / "dump.log").write_text("Error (criu/x.c:1): why")
    with answering(tmp_path, b'{"ok": false, "what": "no", "log": "dump.log"}\n'):
        assert StarterControl(tmp_path, 1).save("4") == Answer(refusal="no", log="Error (criu/x.c:1): why")


def test_a_place_that_is_gone_is_a_lost_rank(tmp_path: Path) -> None:
    with pytest.raises(RankLost, match="sandbox does not answer"):
        StarterControl(tmp_path, 1).save("1")
    with answering(tmp_path, b""), pytest.raises(RankLost, match="sandbox ended during"):
        StarterControl(tmp_path, 1).save("1")


def test_the_client_waits_within_a_bound(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        make_folders(tmp_path)
        server.bind(str(tmp_path / CONTROL_FOLDER / CONTROL))
        server.listen(1)
        with pytest.raises(WaitTimeout, match="'save' for checkpoint 1"):
            StarterControl(tmp_path, -29.9).save("1", -29.9)
        with pytest.raises(WaitTimeout, match=r"waited 0\.2 s for"):
            StarterControl(tmp_path, -29.9).save("1", -29.8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "written"
    made.mkdir()
    return made


def keeper(starter: Any, folder: Path, **more: Any) -> Any:
    options = {"since_ns": 0, "shared": [], "ours": [], **more}
    return starter.Keeper([str(folder)], options.pop("since_ns"), **options)


def test_what_changed_is_put_back_and_what_came_later_goes(starter: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "same").write_text("same")
    (folder / "changed").write_text("as it was")
    (folder / "gone").write_text("it was there")
    (folder / "gone").chmod(0o600)
    one = keeper(starter, folder)
    kept = json.loads(json.dumps(one.keep([], tmp_path / "copies")))
    (folder / "changed").write_text("otherwise")
    (folder / "gone").unlink()
    (folder / "new").touch()
    (folder / "sub" / "sub").mkdir(parents=True)
    assert one.put_back(kept, tmp_path / "copies") == []
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "same": "same",
        "changed": "as it was",
        "gone": "it was there",
    }
    assert (folder / "gone").stat().st_mode & 0o777 == 0o600


def test_what_was_there_before_can_be_cut_only(starter: Any, folder: Path, tmp_path: Path) -> None:
    """It was not changed in this place when the image was taken, so there is no copy."""
    for name in ("grew", "rewritten", "gone"):
        (folder / name).write_text("before")
    one = keeper(starter, folder, since_ns=time.time_ns() + 10**12)
    kept = one.keep([], tmp_path / "copies")
    assert kept["files"] == []
    with (folder / "grew").open("a") as file:
        file.write(" and after")
    (folder / "rewritten").write_text("other!")
    os.utime(folder / "rewritten", ns=(5, 5))
    (folder / "gone").unlink()
    assert sorted(one.put_back(kept, tmp_path / "copies")) == [f"{folder}/gone", f"{folder}/rewritten"]
    assert (folder / "grew").read_text() == "before"


def test_what_is_shared_with_the_host_is_left_alone(starter: Any, folder: Path, tmp_path: Path) -> None:
    shared = folder / "session"
    shared.mkdir()
    one = keeper(starter, folder, shared=[str(shared)])
    kept = one.keep([], tmp_path / "copies")
    (shared / "theirs").touch()
    (folder / "session2").touch()
    assert one.put_back(kept, tmp_path / "copies") == []
    assert (shared / "theirs").exists() and not (folder / "session2").exists()


def test_only_the_rank_s_own_sockets_are_its_own(starter: Any, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        assert starter.bound_sockets([]) == []
        assert str(path) in starter.bound_sockets([os.getpid()])
        one = keeper(starter, tmp_path / "none")
        assert one.keep([], tmp_path / "copies")["sockets"] == []


def test_open_files_are_found_and_whether_they_are_written(starter: Any, tmp_path: Path) -> None:
    (tmp_path / "read").touch()
    with (tmp_path / "read").open(), (tmp_path / "written").open("w"), (tmp_path / "both").open("a+"):
        found = starter.open_files(os.getpid())
    assert [found[str(tmp_path / name)] for name in ("read", "written", "both")] == [False, True, True]
    assert str(tmp_path / "read") not in starter.open_files(os.getpid())


def test_images_share_what_did_not_change(starter: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "large").write_text("the same in both")
    (folder / "log").write_text("1")
    one = keeper(starter, folder)
    first = one.keep([], tmp_path / "first")
    (folder / "log").write_text("1, 2")
    second = one.keep([], tmp_path / "second")
    names = [{Path(file["path"]).name: file["copy"] for file in kept["files"]} for kept in (first, second)]
    assert (tmp_path / "first" / names[0]["large"]).samefile(tmp_path / "second" / names[1]["large"])
    assert (tmp_path / "second" / names[1]["log"]).read_text() == "1, 2"
    assert one.put_back(first, tmp_path / "first") == []
    assert (folder / "log").read_text() == "1"
    assert (tmp_path / "second" / names[1]["log"]).read_text() == "1, 2"


def stored(path: Path, text: str) -> None:
    """As a store through a shared mapping: size and time stay. On a disk the first one changes the time, so it is put
    back here."""
    before = path.stat()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:] = text.encode()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_was_stored_through_a_mapping_is_put_back(starter: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "memory").write_text("one")
    one = keeper(starter, folder)
    first = one.keep([], tmp_path / "first")
    stored(folder / "memory", "two")
    second = one.keep([], tmp_path / "second")
    stored(folder / "memory", "six")
    for kept, copies, text in ((first, "first", "one"), (second, "second", "two"), (first, "first", "one")):
        assert one.put_back(kept, tmp_path / copies) == []
        assert (folder / "memory").read_text() == text


def test_a_long_file_that_is_mapped_is_said_not_to_be_restored(
    starter: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(starter.put.__globals__, "COPIED_BYTES", 4)
    path = folder / "memory"
    path.write_text("0123456789")
    one = keeper(starter, folder)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        kept = json.loads(json.dumps(one.keep([os.getpid()], tmp_path / "mapped")))
    of_it = {**kept, "files": [file for file in kept["files"] if file["path"] == str(path)], "sockets": [], "held": {}}
    left = one.put_back(of_it, tmp_path / "mapped")  # this process may have mapped files of other tests
    assert [name for name in left if Path(name).is_relative_to(folder)] == [str(path)]
    assert not one.put_back(one.keep([], tmp_path / "unmapped"), tmp_path / "unmapped")


def test_a_copy_of_another_file_under_a_number_that_is_used_again_is_not_taken(
    starter: Any, folder: Path, tmp_path: Path
) -> None:
    (folder / "b").write_text("b")
    os.utime(folder / "b", ns=(5, 5))
    one = keeper(starter, folder)
    one.keep([], tmp_path / "1")
    shutil.rmtree(tmp_path / "1")
    (folder / "a").write_text("a")
    os.utime(folder / "b", ns=(7, 7))
    one.keep([], tmp_path / "1")  # `a` lies where `b` lay, which has another time for now
    (folder / "a").unlink()
    os.utime(folder / "b", ns=(5, 5))
    kept = one.keep([], tmp_path / "2")
    assert [(tmp_path / "2" / file["copy"]).read_text() for file in kept["files"]] == ["b"]


def test_a_longer_file_keeps_its_length_only(
    starter: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(starter.put.__globals__, "COPIED_BYTES", 4)
    (folder / "log").write_text("0123456789")
    one = keeper(starter, folder)
    kept = one.keep([], tmp_path / "copies")
    with (folder / "log").open("a") as file:
        file.write("more")
    assert one.put_back(kept, tmp_path / "copies") == []
    assert (folder / "log").read_text() == "0123456789"
    assert list((tmp_path / "copies").iterdir()) == []


@pytest.mark.parametrize("more", ["", " and more"])
def test_a_longer_file_that_was_removed_and_written_again_is_as_it_was(
    starter: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """As the program writes it whenever it runs through there."""
    monkeypatch.setitem(starter.put.__globals__, "COPIED_BYTES", 4)
    path = folder / "shard"
    path.write_text("0123456789")
    os.utime(path, ns=(5, 5))
    one = keeper(starter, folder)
    kept = one.keep([], tmp_path / "copies")
    replaced(path, "0123456789" + more)
    for _ in range(2):
        assert one.put_back(kept, tmp_path / "copies") == []
        assert path.read_text() == "0123456789" and path.stat().st_mtime_ns == 5


def rewritten(path: Path) -> None:
    path.write_text("9876543210 and more")


def replaced(path: Path, text: str = "0123456789") -> None:
    path.rename(path.with_name("before"))
    path.write_text(text)
    path.with_name("before").unlink()


def replaced_by_another(path: Path) -> None:
    replaced(path, "0123456780")


def written_over(path: Path) -> None:
    """At one place, of which no part is kept."""
    with path.open("r+b") as file:
        file.seek(9)
        file.write(b"x")
    os.utime(path, ns=(7, 7))  # clocks of file systems are coarse


@pytest.mark.parametrize(
    "change", [rewritten, replaced_by_another, written_over, Path.unlink, lambda path: os.truncate(path, 3)]
)
def test_a_longer_file_that_was_rewritten_is_said_not_to_be_restored(
    starter: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    monkeypatch.setitem(starter.put.__globals__, "COPIED_BYTES", 4)
    path = folder / "shard"
    path.write_text("0123456789")
    one = keeper(starter, folder)
    kept = json.loads(json.dumps(one.keep([], tmp_path / "copies")))
    change(path)
    for _ in range(2):  # also where it goes back again
        assert one.put_back(kept, tmp_path / "copies") == [str(path)]
        assert path.stat().st_size == 10
