"""A rank that turns against the host, in every place it can run in: what it leaves in its folder leads nowhere, and
what rules it is out of its reach."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from counting import ask, short_folder, with_saving
from runtime_places import Case, walled
from waiting import wait_for

from prismdbg.checkpoint import bundle
from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.runtime.runtime import RunningRank
from prismdbg.runtime.spec import OUTPUT, RANK, ImageOrigin, ProgramOrigin, ReplaySpec
from prismdbg.runtime.starter_control import StarterControl

SECRET = "the host's own"


@dataclass(slots=True)
class Hostile:
    """A rank that does what it is told."""

    case: Case
    spec: ReplaySpec
    socket: Path
    own: RankFolder
    rank: RunningRank

    def does(self, code: str, **names: object) -> Any:
        """What it left in `found`; its error as a text."""
        head = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        answer = ask(self.socket, f"run {(head + textwrap.dedent(code)).encode().hex()}")
        return answer.get("error", answer.get("found"))


@pytest.fixture
def hostile(case: Case) -> Iterator[Hostile]:
    yield from _started(case, lambda spec: spec)


@pytest.fixture
def saved(case: Case) -> Iterator[Hostile]:
    """In a place where images can be taken."""
    with short_folder() as images:
        yield from _started(case, lambda spec: with_saving(spec, bundle.find(), images))


def _started(case: Case, altered: Callable[[ReplaySpec], ReplaySpec]) -> Iterator[Hostile]:
    planned, socket = case.plan()
    spec = altered(planned)
    with RankFolder(spec.session / RANK) as own:
        one = Hostile(case, spec, socket, own, case.runtime.start(spec))
        try:
            yield one
        finally:
            one.rank.kill()


@pytest.fixture
def secret() -> Iterator[Path]:
    with short_folder() as folder:
        path = folder / "secret"
        path.write_text(SECRET)
        yield path


REPLACE = {
    "link": "os.symlink(secret, output)",
    "fifo": "os.mkfifo(output)",
    "folder": "os.mkdir(output)",
    "sparse": "os.truncate(os.open(output, os.O_WRONLY | os.O_CREAT), 1 << 30)",  # the smallest disk limit
}


@pytest.mark.parametrize("how", REPLACE)
def test_a_link_in_place_of_the_output_leads_nowhere(hostile: Hostile, secret: Path, how: str) -> None:
    wait_for(lambda: "counted to" in hostile.own.output.text(), 20, "its output")
    code = f"import os\nos.unlink(output)\n{REPLACE[how]}\nfound = os.listdir(os.path.dirname(output))"
    names = hostile.does(code, output=str(hostile.spec.output), secret=str(secret))
    assert OUTPUT in names, names
    said = hostile.own.output.text()
    assert "counted to" in said and SECRET not in said and len(said) < 1 << 20
    hostile.rank.kill()
    hostile.own.renew()
    assert hostile.own.output.text() == "" and secret.read_text() == SECRET


def test_what_rules_it_is_out_of_its_reach(hostile: Hostile) -> None:
    if hostile.case.runtime.name == "plain":
        pytest.skip("a plain process has the rights of its user: nothing of the user's is out of its reach")
    control = hostile.spec.control
    before = {path.name: path.stat(follow_symlinks=False).st_ino for path in control.iterdir()}
    code = """
        import os
        found = []
        for name in (*names, "new"):
            for what in (
                lambda p: os.unlink(p), lambda p: os.symlink("/etc/passwd", p), lambda p: os.rename(p, p + ".moved"),
                lambda p: os.chmod(p, 0o777), lambda p: os.truncate(p, 0) if "status" not in p else 1 / 0,
                lambda p: os.mkdir(p), lambda p: os.open(p, os.O_WRONLY | os.O_NONBLOCK) if p[-4:] == "line" else 1 / 0,
            ):
                try:
                    what(f"{control}/{name}")
                    found.append(f"{name} {what.__code__.co_firstlineno}")
                except (OSError, ZeroDivisionError):
                    pass
    """
    hostile.does(code, names=sorted(before), control=str(control))
    now = {path.name: path.stat(follow_symlinks=False).st_ino for path in control.iterdir()}
    assert now == before
    lifeline = "import os\nfound = os.open(path, os.O_WRONLY | os.O_NONBLOCK)"
    assert "Error" in str(hostile.does(lifeline, path=str(control / "lifeline")))
    orders = hostile.does("found = open(path).read()", path=str(control / "spec.json"))
    starter_may_more = hostile.case.runtime.name == "local" or hostile.spec.engine is not None
    assert "Error" in orders or not starter_may_more, "the starter's orders can be seen"
    code = "import os\nos.symlink('/etc', path)\nfound = 1"
    assert "Error" in str(hostile.does(code, path=str(hostile.spec.session / "given" / "new")))


def test_lines_that_it_writes_into_the_status_end_nothing(hostile: Hostile) -> None:
    """Only a plain process can do that at all."""
    code = r"""
        with open(path, "a") as file:
            file.write('{"x": 1}\n[1]\n{"event": "restored", "pid": "x"}\nnothing\n' + "[" * 70_000 + "\n")
    """
    hostile.does(code, path=str(hostile.spec.control / "status.jsonl"))
    assert hostile.rank.exit_code() is None
    ask(hostile.socket, "end 7")
    assert hostile.rank.wait(30) == 7


SAY_ENDED = r"""
    import os, socket
    line = b'{"event": "exited", "code": 0}\n'
    found = []
    for path in (f"{control}/status.jsonl", f"{control}/status", *(f"/proc/1/fd/{n}" for n in range(16)),
                 *(f"/proc/{os.getppid()}/fd/{n}" for n in range(16))):
        for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
            try:
                os.write(os.open(path, flags | os.O_NONBLOCK), line * 50_000)
                found.append(path)
            except OSError:
                pass
        with socket.socket(socket.AF_UNIX) as said:
            try:
                said.connect(path)
                said.sendall(line)
                found.append(f"{path} connected")
            except OSError:
                pass
"""


@walled
def test_it_has_no_say_in_what_the_starter_says(hostile: Hostile) -> None:
    """Nor can it drown that: the starter's last line counts, however much the rank has tried to write there."""
    assert hostile.does(SAY_ENDED, control=str(hostile.spec.control)) == []
    assert hostile.rank.exit_code() is None
    said = (hostile.spec.control / "status.jsonl").read_text()
    assert "exited" not in said and len(said) < 4096
    ask(hostile.socket, "end 7")
    assert hostile.rank.wait(30) == 7
    assert '"exited"' in (hostile.spec.control / "status.jsonl").read_text()


@walled
def test_going_back_follows_no_link(saved: Hostile) -> None:
    """The starter puts files back with more rights than the rank has."""
    folder = f"/tmp/prismdbg-hostile-{os.getpid()}"
    opened, victim, output = f"{folder}/opened", f"{folder}/victim", str(saved.spec.output)
    code = """
        import os, builtins
        os.makedirs(os.path.dirname(opened))
        open(victim, "w").write("precious")
        builtins.held = open(opened, "w")
        builtins.held.write("|/handler of the rank")
        builtins.held.flush()
    """
    assert saved.does(code, opened=opened, victim=victim) is None
    control = StarterControl(saved.spec.session, 60)
    image = control.save("1")
    assert image.refusal == ""
    length = saved.own.output.size_bytes
    code = """
        import os
        for path in (opened, output):
            os.unlink(path)
            os.symlink(victim, path)
        open(victim, "a").write(" and much longer than what was written before")
        found = open(victim).read()
    """
    assert saved.does(code, opened=opened, victim=victim, output=output).startswith("precious and")
    answer = control.return_to("1", image.seal)
    assert saved.own.output.size_bytes >= length or answer.refusal
    code = "found = open(path).read()"
    if answer.refusal:
        assert "removed or replaced" in answer.refusal
        return
    assert saved.does(code, path=victim).startswith("precious")
    assert saved.does("import os\nfound = os.path.islink(path)", path=opened) is False


DESCRIPTORS = range(3, 10)  # the starter's
UNSEEN = ("folder in flight", "watch")  # by the starter, and found only in criu's images


@walled
@pytest.mark.parametrize("how", ["folder", "its folder", "mapped file", "FIFO", "folder in flight", "watch"])
def test_going_back_opens_nothing_through_a_link(saved: Hostile, how: str) -> None:
    """criu opens again by path what was open, with the starter's rights."""
    home = f"/tmp/prismdbg-held-{os.getpid()}"
    held = """
        import builtins, ctypes, mmap, os, socket
        os.makedirs(f"{home}/inner")
        os.makedirs(f"{home}/elsewhere")
        path = f"{home}/inner"
        if how == "folder":
            builtins.held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        elif how == "folder in flight":
            builtins.held = socket.socketpair()
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            socket.send_fds(builtins.held[0], [b"x"], [opened])
            os.close(opened)
        elif how == "watch":
            libc = ctypes.CDLL(None, use_errno=True)
            builtins.held = libc.inotify_init1(0)
            libc.inotify_add_watch(builtins.held, path.encode(), 0x100)
        elif how == "its folder":
            path = f"{home}/inner/gone"
            builtins.held = open(path, "w")
            os.unlink(path)
            path = f"{home}/inner"
        elif how == "mapped file":
            path = f"{home}/mapped"
            with open(path, "wb") as file:
                file.write(bytes(4096))
            with open(path, "rb") as file:
                builtins.held = mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ)
            for number in range(3, 100):  # a mapping has a descriptor of its own in Python
                if os.path.islink(f"/proc/self/fd/{number}") and os.readlink(f"/proc/self/fd/{number}") == path:
                    os.close(number)
        else:
            path = f"{home}/fifo"
            os.mkfifo(path)
            builtins.held = os.open(path, os.O_RDWR)
        found = path
    """
    path = saved.does(held, home=home, how=how)
    assert path.startswith(home), path
    control = StarterControl(saved.spec.session, 60)
    if how == "watch" and saved.case.runtime.name == "docker":
        assert "criu could not save" in control.save("1").refusal, "nothing on an overlay has a handle"
        return
    image = control.save("1")
    assert image.refusal == ""
    assert control.return_to("1", image.seal).refusal == ""
    replaced = """
        import os
        os.rename(path, path + ".moved")
        os.symlink(target, path)
        found = os.readlink(path)
    """
    assert saved.does(replaced, path=path, target=f"{home}/elsewhere") == f"{home}/elsewhere"
    refusal = control.return_to("1", image.seal).refusal
    assert ("criu could not restore" if how in UNSEEN else "removed or replaced") in refusal


@walled
@pytest.mark.parametrize("how", ["behind a link", "relative", "below where it works", "removed"])
def test_going_back_binds_nothing_through_a_link(saved: Hostile, how: str) -> None:
    """criu binds again what was bound, with the starter's rights: it would remove and replace what has the name."""
    home = f"/tmp/prismdbg-bound-{os.getpid()}"
    bound = """
        import builtins, os, socket
        os.makedirs(f"{home}/real/inner")
        os.makedirs(f"{home}/elsewhere")
        builtins.bound = socket.socket(socket.AF_UNIX)
        folder, name = f"{home}/real", f"{home}/real/control"
        if how == "behind a link":
            os.symlink(folder, f"{home}/link")
            folder, name = f"{home}/link", f"{home}/link/control"
        elif how != "removed":
            os.chdir(folder)
            name = "control" if how == "relative" else "inner/control"
            folder = folder if how == "relative" else f"{folder}/inner"
        builtins.bound.bind(name)
        builtins.bound.listen(1)
        os.chdir("/")
        if how == "removed":
            os.unlink(name)
        found = folder
    """
    folder = saved.does(bound, home=home, how=how)
    assert folder.startswith(home), folder
    control = StarterControl(saved.spec.session, 60)
    image = control.save("1")
    if how == "behind a link":
        assert "behind a link" in image.refusal
        assert saved.does("found = 'goes on'") == "goes on"
        return
    assert image.refusal == ""
    assert control.return_to("1", image.seal).refusal == ""
    replaced = """
        import os
        os.rename(folder, folder + ".moved")
        os.symlink(target, folder)
        found = os.readlink(folder)
    """
    assert saved.does(replaced, folder=folder, target=f"{home}/elsewhere") == f"{home}/elsewhere"
    assert "criu could not restore" in control.return_to("1", image.seal).refusal


def test_it_cannot_begin_outside_of_its_place(case: Case) -> None:
    """The folder it works in is named by the capsule, and entered by a process that has the starter's descriptors."""
    if case.origin != "start":
        pytest.skip("an image has a folder of its own to work in")
    for number in DESCRIPTORS:
        for process in ("self", "1"):
            planned, _ = case.plan()
            assert isinstance(planned.origin, ProgramOrigin)
            origin = replace(planned.origin, cwd=f"/proc/{process}/fd/{number}")
            with pytest.raises(CapsuleError, match="cwd must be"):
                case.runtime.start(replace(planned, origin=origin)).kill()


@pytest.mark.parametrize("name", ["/./proc/1/fd/9", "/proc/1/fd/9", "/tmp/../proc/1"])
def test_the_starter_looks_itself_at_what_the_engine_opens(case: Case, name: str) -> None:
    """Whatever was checked before."""
    planned, _ = case.plan()
    if not isinstance(planned.origin, ImageOrigin):
        pytest.skip("a program that is started opens its files itself")
    origin = replace(planned.origin, names=(*planned.origin.names, name))
    with pytest.raises(FacilityError, match=r"is not a plain absolute path|belongs to the kernel"):
        case.runtime.start(replace(planned, origin=origin)).kill()
