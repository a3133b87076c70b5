"""The places that ranks run in, up to the moment at which something would be started there.

The runtimes are the product's own: what they ask of the kernel or of Docker is answered here, and what they would start
is looked at instead. What would show the rank more than SECURITY.md says is a failure, as is an order that no starter
could carry out.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from prismdbg.errors import FacilityError
from prismdbg.runtime.own_python import OwnPython
from prismdbg.runtime.spec import Bind, ReplaySpec
from prismdbg.runtime.starter_spec import SPEC
from tests.fuzz.traps import BAIT

NOT_RUN = "the fuzzer runs nothing"


class Shown(AssertionError):
    """Something of this machine that the rank would see, and must not."""


class Places:
    """What is asked of this machine while one input is judged."""

    def __init__(self, scratch: Path, bait: Path) -> None:
        self._scratch = scratch
        self._bait = os.path.realpath(bait)

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        engine = NoEngine(self)
        with contextlib.ExitStack() as stack:
            for name, value in {
                "prismdbg.runtime.local_runtime._why_no_namespaces": lambda: None,
                "prismdbg.runtime.starter_process.make_group": lambda *_: None,
                "prismdbg.runtime.starter_process._started": self.process_would_start,
                "prismdbg.runtime.docker_runtime.unavailable": lambda _: None,
                "prismdbg.runtime.docker_runtime.connect": lambda _: engine,
                "prismdbg.runtime.docker_runtime.own_python": lambda _: self._own_python(),
                "prismdbg.jobs.replay.build.engine": lambda _: contextlib.nullcontext(engine),
            }.items():
                stack.enter_context(patch(name, value))
            yield

    def _own_python(self) -> OwnPython:
        python = OwnPython(folder=self._scratch / "python", command=("/python",))
        python.folder.mkdir(exist_ok=True)
        python.nothing.touch()
        return python

    def process_would_start(self, spec: ReplaySpec, _kind: str, _group: object) -> NoReturn:
        self.check_orders(spec.control / SPEC)
        raise FacilityError(NOT_RUN)

    def check_orders(self, path: Path) -> None:
        """Of a starter: every place of this machine in it may be shown, and each can be made."""
        orders = json.loads(path.read_bytes())
        seen = orders["seen"]
        for name, known in (*seen["folders"], *seen["files"]):
            self.check_shown(name)
            self.check_shown(known["path"])
        for bind in orders["binds"]:
            self.check_shown(bind["source"])
        for file in orders["files"]:
            if file["source"] is not None:
                self.check_shown(file["source"])
        targets = [each["target"] for each in (*orders["binds"], *orders["files"])]
        links = [path for path, _ in seen["links"]]
        for path in (*orders["folders"], *orders["absent"], *targets, *links):
            _check_laid(str(path))
        if orders["program"] is not None:
            _check_program(orders["program"])

    def check_binds(self, binds: Iterable[Bind]) -> None:
        for bind in binds:
            self.check_shown(str(bind.source))
            _check_laid(bind.target)

    def check_shown(self, path: str) -> None:
        """Nothing of the bait's, by whatever name, nor what it lies in; nor what nobody could show."""
        real = os.path.realpath(path)
        if f"{real}/".startswith(f"{self._bait}/") or f"{self._bait}/".startswith(f"{real.rstrip('/')}/"):
            raise Shown(f"the rank would see {path[:100]!r}")
        if not (os.path.isfile(real) or os.path.isdir(real)):  # noqa: PTH112, PTH113  a FIFO, say, or a device
            raise Shown(f"{path[:100]!r} is neither a file nor a folder")

    def check_archive(self, chunks: Iterable[bytes]) -> None:
        """All of it is made, as for Docker."""
        before = b""
        for chunk in chunks:
            if BAIT in before + chunk:
                raise Shown("a layer of the container image holds what the rank must not see")
            before = chunk[-len(BAIT) :]


class SaysNothing:
    """The output of a container that does not start."""

    def said(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing is open."""


class NoEngine:
    """Docker's, as far as a replay asks it: it takes whatever it is given, and starts no container."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def has_image(self, _tag: str) -> bool:
        return False

    def remove_abandoned(self) -> None:
        """There is none."""

    def images_labelled(self, _label: str) -> list[str]:
        return []

    def import_image(self, _repository: str, _tag: str, layer: Iterable[bytes], _labels: object) -> None:
        self._places.check_archive(layer)

    def create(self, _image: str, command: list[str], *, binds: Iterable[Bind] = (), **_options: Any) -> str:
        self._places.check_binds(binds)
        if (orders := Path(command[-1])).name == SPEC:  # not of one that an image is made in
            self._places.check_orders(orders)
        return "a container"

    def put(self, _container: str, archive: Iterable[bytes]) -> None:
        self._places.check_archive(archive)

    def commit(self, *_: object, **__: object) -> None:
        """It has all that it needs."""

    def remove(self, _container: str) -> None:
        """Nothing was made."""

    def close(self) -> None:
        """Nothing is open."""

    def attach(self, _container: str) -> SaysNothing:
        return SaysNothing()

    def start(self, _container: str) -> NoReturn:
        raise FacilityError(NOT_RUN)


def _check_laid(path: str) -> None:
    """Where something is put that the rank finds there: not among the kernel's files, and nowhere but there."""
    _check_made(path)
    assert os.path.normpath(path) == path, f"leads elsewhere: {path[:80]!r}"
    is_kernels = f"{path}/".startswith(("/proc/", "/sys/", "/dev/")) and not path.startswith("/dev/shm/")
    assert path == "/dev/shm" or not is_kernels, f"among the kernel's files: {path[:80]!r}"


def _check_made(path: str) -> None:
    try:
        Path(path).lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except OSError as error:
        if error.errno != errno.ELOOP:  # on this machine; the starter follows no link, and says so. ENAMETOOLONG is one
            raise
    assert path.startswith("/") and path.count("/") < 500, f"no folders that deep: {path[:80]}"


def _check_program(program: dict[str, Any]) -> None:
    """By the bounds of execve(2)."""
    assert program["argv"], "no program to start"
    _check_made(program["cwd"])
    _check_made(program["executable"])
    variables = [f"{name}={value}" for name, value in program["env"].items()]
    sizes = [len(os.fsencode(text)) + 1 for text in (*program["argv"], *variables)]
    assert max(sizes) <= 128 << 10 and sum(sizes) <= 6 << 20, "more than a program can be started with"
    assert all(name and "=" not in name for name in program["env"]), "a variable without a name"
