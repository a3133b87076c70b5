"""What a replay will want to find of what was read before anybody could tell."""

from __future__ import annotations

import glob
import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from prismdbg.rank.recording.inputs import opened_files
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles

ROOT = Path(__file__).resolve().parents[5]
LAUNCHER = """
import runpy, sys
import settings
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
files = OpenedFiles("/nowhere")
files.install()
open(__file__.replace("program.py", "data")).close()
found = []
files.listen(lambda kind, path, _: found.append(f"{kind} {path}"))
print("\\n".join(found))
"""


def test_a_launcher_and_modules_from_before_are_files_of_the_program(tmp_path: Path) -> None:
    for name, text in (("launcher.py", LAUNCHER), ("program.py", PROGRAM), ("settings.py", ""), ("data", "")):
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "launcher.py", str(tmp_path / "program.py"), str(ROOT)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = done.stdout.splitlines()
    assert {f"file {tmp_path / name}" for name in ("launcher.py", "settings.py", "data")} <= set(found)
    assert not [line for line in found if "/lib/python" in line], "what is installed is not the program's"


def printed(folder: Path, **options: Any) -> list[str]:
    """The lines of the program in the folder."""
    given = {"cwd": folder, "capture_output": True, "text": True, "timeout": 120, "check": True, **options}
    done = subprocess.run([sys.executable, "program.py", str(ROOT)], **given)
    return str(done.stdout).splitlines()


LOADS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
files = OpenedFiles("/nowhere")
files.install()
for folder in ("made", "torchs", "site-packages"):
    os.mkdir(folder)
    open(f"{folder}/built.so", "w").close()
for folder, name in (("torchs", "built"), ("made", "other")):
    with open(f"{folder}/build.ninja", "w") as plan:
        plan.write(f"build {name}.so: link main.o")
# fakes: what ctypes, the import of an extension and that of a module tell
made = ("made/built.so", "torchs/built.so", "site-packages/built.so")
for name in (*made, b"beside.so", b"./beside.so", "libm.so.6", None):
    sys.audit("ctypes.dlopen", name)
sys.audit("import", "module", os.path.abspath("module.so"), None, None, None)
sys.audit("import", "module", None, sys.path, sys.meta_path, sys.path_hooks)
found = []
files.listen(lambda kind, path, _: found.append(f"{kind} {os.path.relpath(path)}"))
print("\\n".join(line for line in found if line.endswith(".so")))
"""


def test_libraries_are_files_that_it_reads_and_those_that_it_built_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOADS)
    for name in ("beside.so", "module.so"):
        (tmp_path / name).touch()
    lines = printed(tmp_path)
    assert lines == [
        "made made/built.so",
        "made torchs/built.so",
        "made site-packages/built.so",
        "file made/built.so",
        "file torchs/built.so",
        "built torchs/built.so",
        "file beside.so",
        "file module.so",
    ]


STARTS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
files = OpenedFiles("/nowhere")
files.install()
# fakes: what is told of each way to start a program
sys.audit("subprocess.Popen", "env", ["env"], None, None)
sys.audit("subprocess.Popen", b"./own", [b"./own"], None, None)
sys.audit("subprocess.Popen", "/bin/sh", ["/bin/sh", "-c", "uname -a | cat"], None, None)
sys.audit("subprocess.Popen", "/bin/sh", ["/bin/sh", "script"], None, None)
sys.audit("subprocess.Popen", "/bin/bash", [b"bash", b"-c", b"LC_ALL=C '/usr/bin/expr' 1"], None, None)
sys.audit("subprocess.Popen", "./inner", ["inner"], "folder", None)
search = os.path.abspath("wrapped") + ":" + os.path.abspath("folder")
sys.audit("subprocess.Popen", "g++", ["g++"], None, {"PATH": search})
sys.audit("subprocess.Popen", "ccache", ["ccache", "./inner"], "folder", {"PATH": os.path.abspath("wrapped")})
sys.audit("subprocess.Popen", os.path.abspath("wrapped/c++"), ["c++"], None, {b"PATH": os.fsencode(search)})
sys.audit("subprocess.Popen", "cat", ["cat"], None, {})
import ctypes.util
ctypes.util.find_library("no-such-library")
sys.audit("subprocess.Popen", "no-such-program", ["no-such-program"], None, None)
sys.audit("os.system", b"")
sys.audit("os.system", b"true")
sys.audit("os.posix_spawn", "/bin/cat", ["cat"], {})
found = []
files.listen(lambda kind, path, _: found.append(path) if kind == "ran" else None)
print("\\n".join(found))
"""


def test_programs_that_it_starts_are_found_as_it_finds_them(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STARTS)
    own = tmp_path / "own"
    own.touch(0o755)
    for folder in ("wrapped", "folder"):
        (tmp_path / folder).mkdir()
    for name in ("wrapped/ccache", "folder/c++", "folder/g++", "folder/inner"):
        (tmp_path / name).touch(0o755)
    for name in ("c++", "g++"):
        (tmp_path / "wrapped" / name).symlink_to("ccache")
    lines = printed(tmp_path, env={**os.environ, "PATH": "/usr/bin:/bin"})
    usual = [which("env"), str(own), "/bin/sh", which("uname"), "/bin/bash", "/usr/bin/expr"]
    others = [str(tmp_path / name) for name in ("folder/inner", "wrapped/g++", "folder/g++", "wrapped/ccache")]
    compilers = [str(tmp_path / name) for name in ("wrapped/c++", "folder/c++")]
    assert lines == [
        *usual,
        *others,
        *compilers,
        shutil.which("cat", path=os.defpath),
        which("true"),
    ]


def which(name: str) -> str:
    return str(shutil.which(name, path="/usr/bin:/bin"))


LOOKS = """
import mmap, os, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
files = OpenedFiles("/nowhere")
held = {name: os.open(name, os.O_RDWR) for name in ("mapped", "written", "private", "read", "both")}
read, late = os.open("read", os.O_RDONLY), os.open("both", os.O_RDONLY)
os.utime("both", ns=(0, files._since_ns + 1))  # as what a library has written since
maps = [
    mmap.mmap(held["mapped"], 1, prot=mmap.PROT_READ),
    mmap.mmap(held["written"], 1),
    mmap.mmap(held["private"], 1, flags=mmap.MAP_PRIVATE),
]
found = []
files.listen(lambda kind, path, _: found.append(f"{kind} {path}"))
files.look()
files.look()
print("\\n".join(found))
"""


def test_what_native_code_has_mapped_or_holds_open_is_found(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOOKS)
    for name in ("mapped", "written", "private", "read", "both"):
        (tmp_path / name).write_text("x")
    with (tmp_path / "input").open("w+") as given:
        lines = printed(tmp_path, stdin=given)
    assert sorted(lines) == [f"file {tmp_path / name}" for name in ("mapped", "private", "read")]


CHILDREN = """
import multiprocessing, os, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
os.makedirs("told", exist_ok=True)
files = OpenedFiles("/nowhere", told_in=os.path.abspath("told"))
files.install()
found = []

def reads(name, is_listening=False):
    open(name).close()
    if is_listening:  # it has the rank's listener, and no log
        files.hear()

def child_reads(context, *names):
    children = [multiprocessing.get_context(context).Process(target=reads, args=(name, True)) for name in names]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0

if __name__ == "__main__":
    child_reads("fork", "early")
    files.listen(lambda kind, path, _: found.append(f"{kind} {os.path.relpath(path)}"))
    files.hear()
    reads("own")
    child_reads("fork", "own", "forked")
    child_reads("spawn", "spawned")
    assert "file spawned" not in found
    files.hear()
    child_reads("forkserver", "served")
    files.end()
    files.hear()
    print("\\n".join(line for line in found if line.startswith("file ")))
    print(f"{os.getpid()}.opened" in os.listdir("told"))
"""


def test_a_rank_hears_once_of_each_file_that_its_children_read(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CHILDREN)
    for name in ("early", "own", "forked", "spawned", "served"):
        (tmp_path / name).touch()
    lines = printed(tmp_path)
    *found, left = lines
    assert found == [f"file {name}" for name in ("program.py", "early", "own", "forked", "spawned", "served")]
    assert left == "False", "its file is gone"


HELD_BY_A_CHILD = """
import multiprocessing, os, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
files = OpenedFiles("/nowhere")

def holds(pipe):
    os.open("held", os.O_RDONLY)  # no audit hook is installed here: as native code
    pipe.send(None)
    pipe.recv()

ours, theirs = multiprocessing.Pipe()
child = multiprocessing.get_context("fork").Process(target=holds, args=(theirs,))
child.start()
ours.recv()
found = []
files.listen(lambda kind, path, _: found.append(f"{kind} {os.path.relpath(path)}"))
files.look()
ours.send(None)
child.join()
print("\\n".join(found))
"""


def test_what_a_child_holds_open_is_found(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HELD_BY_A_CHILD)
    (tmp_path / "held").touch()
    lines = printed(tmp_path, stdin=subprocess.DEVNULL)
    assert "file held" in lines


GIVEN = """
import os, sqlite3, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
files = OpenedFiles(os.path.abspath("run"))
files.install()
for path in ("parts", "table-*.csv", "single.h5", "gone", "gone-*", "fresh", "deep/**/*.parquet"):
    files.about_to_read(path)
for name in ("there.db", "file:by%20uri.db?mode=ro", ":memory:", "new.db"):
    sqlite3.connect(name, uri=True).close()
found = []
files.listen(lambda kind, path, _: found.append(f"{kind} {os.path.relpath(path)}"))
print("\\n".join(sorted(found)))
"""


def test_what_is_given_to_native_code_may_be_a_folder_a_pattern_or_a_database(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(GIVEN)
    (tmp_path / "parts" / "inner").mkdir(parents=True)
    (tmp_path / "parts" / "0-dangling").symlink_to("gone")
    (tmp_path / "deep" / "a" / "b").mkdir(parents=True)
    (tmp_path / "deep" / "a" / "up").symlink_to("..")  # a search that follows links has no end
    (tmp_path / "deep" / "up").symlink_to(".")
    files = (
        "deep/a/b/d.parquet",
        "parts/a",
        "parts/inner/b",
        "table-1.csv",
        "table-2.csv",
        "single.h5",
        "fresh",
        "there.db",
        "by uri.db",
    )
    for name in (*files, "there.db-wal", "not-given"):
        (tmp_path / name).touch()
    os.utime(tmp_path / "fresh", ns=(0, 2**62))  # as what a library has written since
    lines = printed(tmp_path)
    read = (set(files) | {"there.db-wal", "program.py"}) - {"fresh"}
    assert lines == sorted([f"file {name}" for name in read] + ["folder .", "made new.db"])


BECOMES_A_RANK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
os.mkdir("told")
files = OpenedFiles("/nowhere", told_in=os.path.abspath("told"))
files.install()
if os.fork():
    os.wait()
    os._exit(0)
open("mine").close()
found = []
files.listen(lambda kind, path, _: found.append(f"{kind} {os.path.relpath(path)}"))
print("\\n".join(found))
"""


def test_a_forked_child_that_becomes_a_rank_tells_all_in_its_own_log(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BECOMES_A_RANK)
    (tmp_path / "mine").touch()
    lines = printed(tmp_path)
    assert {"file program.py", "file mine"} <= set(lines)


ENDS = """
import os, subprocess, sys, tempfile, threading
import torch
import torch.nn.functional
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
from prismdbg.rank.recording.inputs.outcomes import Outcomes
from prismdbg.rank.recording.program_exit import ExitCode
if len(sys.argv) < 3:
    OpenedFiles("/nowhere").install()
    Outcomes().install()
    ExitCode().install()

class Held:
    def __init__(self, name, remove=os.remove, run=subprocess.run, system=os.system, leave=sys.exit, out=sys.stdout):
        open(name, "w").close()
        def gone():
            remove(name)
            try:
                code = run(["false"]).returncode
            except Exception as error:
                code = type(error).__name__  # the names of subprocess are gone
            codes = system("exit 3") >> 8, code
            try:
                leave(4)
            except SystemExit as error:
                out.write(f"{name} {codes} {error.code}\\n")
        self.gone = gone
    def __del__(self):
        self.gone()

for module in (torch, torch.nn.functional, tempfile, threading, os):
    module.kept_here = Held(module.__name__)
"""


def test_what_is_done_while_python_ends_is_done(tmp_path: Path) -> None:
    """The hooks are called longer than the names of their modules last."""
    (tmp_path / "program.py").write_text(ENDS)
    done = [
        subprocess.run(
            [sys.executable, "program.py", str(ROOT), *bare],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        for bare in (["bare"], [])
    ]
    bare, recorded = ((sorted(each.stdout.splitlines()), each.stderr) for each in done)
    assert recorded == bare
    assert [line.split()[0] for line in recorded[0]] == ["os", "tempfile", "threading", "torch", "torch.nn.functional"]
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_a_folder_is_listed_where_no_line_of_python_asks(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(NO_FRAME)
    assert printed(tmp_path) == ["listed"]


NO_FRAME = """
import os, sys, _thread, threading
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
OpenedFiles("/nowhere").install()
done = threading.Event()
sys.unraisablehook = lambda told: (print(told.exc_value), done.set())
class Folder(str):
    def __del__(self):
        print("listed")
        done.set()
_thread.start_new_thread(os.listdir, (Folder("/"),))
done.wait(60)
"""


def test_a_pattern_is_looked_for_as_glob_does(tmp_path: Path) -> None:
    for name in ("a/x.bin", "a/y.bin", "b/x.bin", ".c/x.bin", "d.bin", "a/.z.bin", "e/f/x.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "file").touch()
    late = time.monotonic() + 60
    for pattern in (
        "*/x.bin",
        "a/*.bin",
        "*/*",
        ".*/*",
        "?/[xy].bin",
        "*",
        "*/f/*.bin",
        "none/*",
        "a/.*",
        "file/*",
        "[ae]/*/x.bin",
    ):
        named = str(tmp_path / pattern)
        assert sorted(opened_files._matches("/", named.split("/")[1:], late)) == sorted(glob.glob(named)), pattern  # noqa: PTH207


def test_a_search_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that finds nothing."""
    for number in range(50):
        (tmp_path / f"folder{number}").mkdir()
    clock = itertools.count()
    asked = []
    lexists = os.path.lexists
    monkeypatch.setattr(opened_files.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(opened_files.os.path, "lexists", lambda path: asked.append(path) or lexists(path))
    assert list(opened_files._matches("/", [*str(tmp_path).split("/")[1:], "*", "x.bin"], 10)) == []
    assert len(asked) == 11


def test_what_is_found_is_looked_at_no_longer_than_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        (tmp_path / f"file{number}").touch()
    files = OpenedFiles(str(tmp_path / "run"))
    clock, looked = itertools.count(step=0.01), []
    monkeypatch.setattr(opened_files.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(files, "_tell_of_input", looked.append)
    files.about_to_read(tmp_path / "file*")
    assert 5 < len(looked) < 15


def test_names_that_are_no_files_are_remembered_within_a_bound(tmp_path: Path) -> None:
    """A program may read another address each time."""
    files = OpenedFiles(str(tmp_path / "run"))
    for number in range(20_000):
        files.about_to_read(f"https://host/part{number}.parquet")
    assert 0 < len(files._looked_in) <= 10_000
