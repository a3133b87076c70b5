"""CRIU behind `Engine`: a thin front of the modules that find it, run it, and read and edit its images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from prismdbg.checkpoint import bundle, criu, gpu, gpu_part
from prismdbg.checkpoint import images as process_images
from prismdbg.checkpoint.bundle import Criu
from prismdbg.checkpoint.criu_log import explain, explain_foreign
from prismdbg.checkpoint.engine import DumpReport, ProcessImage, Program, Use
from prismdbg.errors import FacilityError

NAME = "criu"  # `images/starter/choice.py` has it, too
CAPABILITIES = ("SYS_PTRACE", "SYS_ADMIN", "NET_ADMIN", "SYS_TIME")  # the last is for its time namespace


@dataclass(frozen=True, slots=True)
class CriuEngine:
    """`Engine`."""

    _criu: Criu

    @property
    def program(self) -> Program:
        return Program(
            name=NAME,
            version=self._criu.version,
            folder=self._criu.folder,
            command=self._criu.command(),
            capabilities=CAPABILITIES,
            explain=explain,
            explain_foreign=explain_foreign,
        )

    def dump(self, pid: int, images: Path, *, timeout_s: float) -> Callable[[], DumpReport]:
        with gpu.in_memory(pid, timeout_s=min(timeout_s, gpu.MOVE_BOUND_S), dump_s=timeout_s) as part:
            criu.dump_only(self._criu, pid, images, leave_running=True, timeout_s=timeout_s)
        if part is not None:
            gpu_part.save_part(images, part)
        return partial(self._report, images)

    def _report(self, images: Path) -> DumpReport:
        left = process_images.unrestorable(self._criu, images)
        return replace(criu.report(self._criu, images), unrestorable=left)

    def read(self, images: Path) -> ProcessImage:
        image = process_images.read(self._criu, images)
        return replace(image, gpu=gpu_part.read_part(images, image.pids))

    def require_restorable(self, images: Path) -> None:
        self.read(images)
        process_images.require_restorable(self._criu, images)

    def prepare_restore(self, images: Path, into: Path, *, seen_as: PurePosixPath, seccomp: bytes) -> tuple[str, ...]:
        return process_images.prepare_restore(self._criu, images, into, seen_as=seen_as, seccomp=seccomp)


def find(use: Use) -> CriuEngine:
    """`Find`."""
    if use is Use.READ:
        return CriuEngine(_readable())
    return CriuEngine(bundle.build() if use is Use.BUILD else bundle.find())


def _readable() -> Criu:
    if (found := bundle.reader()) is None:
        raise FacilityError("no CRIU on this machine", hint="see `prismdbg doctor`")
    return found
