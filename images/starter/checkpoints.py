"""Images of the living rank, and the way back to one. Standard library only.

The client asks on a Unix socket, one JSON line a connection, and gets one JSON line (`prismdbg.runtime.starter_spec`
has the protocol). While a request is carried out nothing else is.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from engine import DumpError, Engine, RestoreError
from folder_digest import States, differing, digest_of, states_of
from gpu_state import GpuError, Gpus
from kept_files import Keeper, processes
from limits import Met, limit_restored
from output import end_output, settle_output
from rank import Report, Spec, restore_images
from syscalls import PlaceError, follow_links

END_S = 20.0
REQUEST_S = 5.0
REQUEST_BYTES = 4096


class Checkpoints:
    """One rank and its images, each a folder `name` with `images`, `files` and, when it is whole, `facts.json`.

    Must be the first process of a PID namespace that holds nothing but the rank. The rank has no way to where they
    lie; all the same an image that is not as it was saved is not restored.
    """

    def __init__(self, spec: Spec, engine: Engine, gpus: Gpus, met: Met, report: Report) -> None:
        require_namespace()
        follow_links("/", follow=True)  # as they are: a kernel that does not know how says so now
        self._spec = spec
        self._saving = spec["saving"]
        self._output = spec["output"]
        self._engine = engine
        self._gpus = gpus
        self._folder = Path(self._saving["folder"])
        self._work = self._saving["work"]
        self._report = report
        self._states: dict[str, States] = {}  # of images that were saved here
        self._digests: dict[str, str] = {}
        if name := self._saving["start_from"]:
            self._digests[name] = self._saving["seal"]
        self.dump_log: str = self._saving["dump_log"]
        self.restore_log: str = self._saving["restore_log"]
        self._keeper = Keeper(
            self._saving["folders"],
            self._saving["since_ns"],
            shared=self._saving["shared"],
            ours=[spec["output_path"]],
        )
        self.met = met
        self.rank: int | None = None

    def save(self, name: str, least_s: float = 0.0) -> dict[str, Any]:
        """The rank stands still until its files are kept, too; then it goes on. least_s: how long the engine may take,
        where that is more than usual."""
        if self.rank is None:
            raise PlaceError("the rank has ended")
        folder = self._folder / name
        (folder / "images").mkdir(parents=True)
        tree = processes()
        standards = terminals(self.rank)
        leads_session = os.getsid(self.rank) == self.rank
        gpu_pids = self._gpus.suspend(tree, self._saving["timeout_s"])
        try:
            self._engine.dump(
                {
                    **self._asked(folder, self.dump_log, least_s),
                    "root_pid": self.rank,
                    "standards": standards,
                    "leads_session": leads_session,
                }
            )
            kept = self._keeper.keep(list(tree), folder / "files")
            settle_output()
            length = Path(self._output).stat().st_size
        finally:
            go_on()
            self._gpus.resume(gpu_pids, self._saving["timeout_s"])
        pids = sorted({thread for threads in tree.values() for thread in threads})
        facts = {
            **kept,
            "root_pid": self.rank,
            "pids": pids,
            "gpu_pids": gpu_pids,
            "leads_session": leads_session,
            "standards": standards,
            "output_bytes": length,
        }
        (folder / "facts.json").write_text(json.dumps(facts))
        self._states[name] = states_of(folder)
        self._digests[name] = digest_of(self._states[name])
        return {"output_bytes": length, "left": [], "seal": self._digests[name]}

    def return_to(self, name: str, seal: str = "", least_s: float = 0.0) -> dict[str, Any]:
        """Ends the rank, if it lives; then it stands where it was saved, and its files and output are as they were.
        seal: of an image that another starter saved, before this one began. least_s: as in `save`."""
        known = self._digests.get(name, seal)
        states = states_of(self._folder / name)
        if digest_of(states) != known:
            changed = differing(self._states.get(name, states), states)
            where = f": {changed[0]}" if changed else ""
            raise PlaceError(f"checkpoint {name} was modified after it was saved{where}")
        self._digests[name] = known
        facts = json.loads((self._folder / name / "facts.json").read_text())
        self._gpus.require(facts.get("gpu_pids", ()))
        self.rank = None
        end_all()
        end_output()
        os.truncate(self._output, facts["output_bytes"])
        left = self._keeper.put_back(facts, self._folder / name / "files")
        asked = {
            **self._asked(self._folder / name, self.restore_log, least_s),
            **{key: facts[key] for key in ("standards", "leads_session", "pids", "root_pid")},
        }
        with no_links_followed():
            self.rank = restore_images(self._engine, asked, self._output, self._report)
        let_go(self._spec, facts["pids"])
        self._gpus.resume(facts.get("gpu_pids", ()), self._saving["timeout_s"])
        return {"output_bytes": facts["output_bytes"], "left": left, "seal": self._digests[name]}

    def _asked(self, folder: Path, log: str, least_s: float) -> dict[str, Any]:
        timeout_s = max(self._saving["timeout_s"], least_s)
        return {"images": str(folder / "images"), "work": self._work, "log": log, "timeout_s": timeout_s}


def terminals(pid: int) -> list[tuple[int, str]]:
    """Those on standard input and output are ours: named by the keys of a restore, so that it can replace them."""
    found = []
    for number in (0, 1, 2):
        link = Path(f"/proc/{pid}/fd/{number}")
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith("/dev/pts/"):
                status = link.stat()
                found.append((number, f"tty[{status.st_rdev:x}:{status.st_dev:x}]"))
    return found


@contextlib.contextmanager
def no_links_followed() -> Iterator[None]:
    """Nobody of the rank runs meanwhile. The engine opens and binds by name what it found in the image, with the
    starter's rights, and the rank may have left links in those places; the names that the kernel gave it hold none. Its
    own descriptors are links of /proc."""
    follow_links("/", follow=False)
    try:
        follow_links("/proc", follow=True)
        yield
    finally:
        follow_links("/", follow=True)


def let_go(spec: Spec, pids: list[int]) -> None:
    """A restored rank, stopped so far, runs from here on, within its limits."""
    limit_restored(spec, pids)
    go_on()


def go_on() -> None:
    require_namespace()
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGCONT)  # all there are in the namespace


def require_namespace() -> None:
    """What is done to every process here is done to the rank's only."""
    if os.getpid() != 1:
        raise PlaceError("checkpoints require the rank to have its own PID namespace")


def end_all() -> None:
    """Kills and reaps every other process of the namespace."""
    require_namespace()
    deadline = time.monotonic() + END_S
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if time.monotonic() > deadline:
            raise PlaceError(f"waited {END_S:g} s for the rank's processes to end")
        time.sleep(0.001)


def listen(spec: Spec) -> socket.socket:
    """Before the rank is said to run: whoever hears that may ask. In a folder that the rank does not see."""
    control = socket.socket(socket.AF_UNIX)
    control.bind(spec["saving"]["control"])
    control.listen(4)
    return control


def attend(checkpoints: Checkpoints, control: socket.socket, report: Report) -> NoReturn:
    """Reaps, says when the rank ends, and answers requests, until the place is ended from outside."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        _reap(checkpoints, report)
        ready = {number for number, _ in poll.poll()}
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        if control.fileno() in ready:
            _serve(control, checkpoints, report)


def _reap(checkpoints: Checkpoints, report: Report) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == checkpoints.rank:
                checkpoints.rank = None
                code = os.waitstatus_to_exitcode(ended[1])
                code = code if code >= 0 else 128 - code
                report("exited", code=code, limits=checkpoints.met.names(code))


def _serve(control: socket.socket, checkpoints: Checkpoints, report: Report) -> None:
    """One connection. A client that says nothing, or is gone before its answer, is not waited for."""
    client, _ = control.accept()
    with client, contextlib.suppress(OSError):
        client.settimeout(REQUEST_S)
        with client.makefile("rb") as stream:
            line = stream.readline(REQUEST_BYTES)
        client.sendall(json.dumps(answer(line, checkpoints, report)).encode() + b"\n")


def answer(line: bytes, checkpoints: Checkpoints, report: Report) -> dict[str, Any]:
    try:
        request = json.loads(line)
        verb, name = request["do"], request["name"]
        if not (isinstance(name, str) and name.isalnum()):
            raise PlaceError(f"{name!r} is not a valid checkpoint name")
        if verb not in ("save", "return"):
            raise PlaceError(f"unknown request to the starter: {verb!r}")
        least_s = float(request.get("least_s", 0))
        if verb == "save":
            return {"ok": True, **checkpoints.save(name, least_s)}
        return {"ok": True, **checkpoints.return_to(name, str(request.get("seal", "")), least_s)}
    except DumpError as error:
        return {"ok": False, "what": str(error), "log": checkpoints.dump_log}
    except RestoreError as error:
        report("exited", code=128 + signal.SIGKILL)
        return {"ok": False, "what": str(error), "log": checkpoints.restore_log}
    except (OSError, PlaceError, GpuError, ValueError, KeyError, TypeError) as error:
        return {"ok": False, "what": str(error) or type(error).__name__, "log": ""}
