"""Drives criu on a live process: one bounded dump and what it cost, or a `CheckpointError` with its reason."""

from __future__ import annotations

from pathlib import Path

from prismdbg.checkpoint.bindings import load_image
from prismdbg.checkpoint.bounded import run_bounded
from prismdbg.checkpoint.bundle import Criu
from prismdbg.checkpoint.criu_log import explain
from prismdbg.checkpoint.engine import DumpReport
from prismdbg.errors import CheckpointError, CheckpointTooSlow, WaitTimeout
from prismdbg.settings.process_stat import fields_of

LOG = "dump.log"
# Shared memory that is already unlinked (DataLoader's tensors) is kept in the image; criu's own limit: 1 MB.
GHOST_LIMIT_BYTES = 16 << 30
FREEZE_S = 90.0


def dump(criu: Criu, pid: int, images: Path, *, leave_running: bool, timeout_s: float) -> DumpReport:
    """Dumps `pid` and its children into the new folder `images`, and says what it cost."""
    dump_only(criu, pid, images, leave_running=leave_running, timeout_s=timeout_s)
    return report(criu, images)


def dump_only(criu: Criu, pid: int, images: Path, *, leave_running: bool, timeout_s: float) -> None:
    """As `dump`, but returns as soon as criu does: for callers whom somebody waits for.

    Connections are recorded as established and closed at the restore, so nothing needs to be locked: what
    arrives meanwhile waits in the kernel for the process that goes on. criu's own bound, which lets the process
    go, is that of freezing it. While memory is written there is only `timeout_s`, after which criu is killed:
    that can cost the rank its life (`engine.bound_s`).
    """
    images.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [*criu.command(), "dump", "--tree", str(pid), "--images-dir", str(images)]
    command += ["--tcp-established", "--ext-unix-sk", "--file-locks", "--network-lock", "skip"]
    command += ["--ghost-limit", str(GHOST_LIMIT_BYTES), "--timeout", str(max(int(min(timeout_s, FREEZE_S)) - 2, 1))]
    command += ["-v4", "--log-file", LOG, *_terminal(pid), *_session(pid)]
    if leave_running:
        command.append("--leave-running")
    try:
        ran = run_bounded(command, timeout_s=timeout_s, what=f"criu to dump process {pid}", let_finish=True)
    except WaitTimeout as error:
        raise CheckpointTooSlow(
            f"the checkpoint of process {pid} was not complete within {timeout_s:g} s, and criu was killed",
            hint="run `prismdbg status RUN` to see whether the rank is still running: criu may have killed it; then "
            "use a faster disk, or capture with --origin start",
        ) from error
    if ran.returncode != 0:
        raise explain(f"dump process {pid}", _log_of(images), fallback=ran.output)


def report(criu: Criu, images: Path) -> DumpReport:
    """What a finished dump cost."""
    stats = load_image(criu, images / "stats-dump")[0]["dump"]
    return DumpReport(
        images=images,
        images_bytes=sum(path.stat().st_size for path in images.iterdir()),
        frozen_ns=int(stats["frozen_time"]) * 1000,
        pages_bytes=int(stats["pages_written"]) * 4096,
    )


def _session(pid: int) -> list[str]:
    """A process that does not lead its session can only be dumped as part of its caller's."""
    try:
        fields = fields_of(pid)
    except OSError as error:
        raise CheckpointError(f"process {pid} has ended", hint="capture a rank that is alive") from error
    return [] if int(fields[3]) == pid else ["--shell-job"]


def _terminal(pid: int) -> list[str]:
    """Terminals on standard input and output are the user's: named, so that a restore can replace them."""
    named: list[str] = []
    for number in (0, 1, 2):
        link = Path(f"/proc/{pid}/fd/{number}")
        try:
            if str(link.readlink()).startswith("/dev/pts/"):
                status = link.stat()
                named += ["--external", f"tty[{status.st_rdev:x}:{status.st_dev:x}]"]
        except OSError:
            continue
    return named


def _log_of(images: Path) -> str:
    try:
        return (images / LOG).read_text(errors="replace")
    except OSError:
        return ""
