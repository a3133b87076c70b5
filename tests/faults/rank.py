"""One rank of two that learn: `rank.py SIGNS PHASES`, with RANK and WORLD_SIZE in the environment.

Before each phase it makes `ready.RANK.PHASE` in SIGNS and waits for `go.PHASE`; what that file names it does. Every
step depends on the one before, so a collective that is lost, repeated or changed shows in the result. On its first
start it fails in the phase named by FAIL_IN, for launchers that start it again.
"""

import contextlib
import gc
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[1] / "integration" / "programs"))
import uncompiled  # noqa: F401

STEPS = 20
SIGNS, PHASES = Path(sys.argv[1]), int(sys.argv[2])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def fork(body: str = "") -> None:
    child = os.fork()
    if child == 0:
        try:
            if body == "torch":
                torch.ones(10).sum()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def close_ours() -> None:
    """As a daemon closes whatever it did not open; a file of the program's own takes the number."""
    theirs = SIGNS / f"theirs.{RANK}"
    for link in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if str(link.readlink()).endswith(".seg"):
                with theirs.open("wb") as file:
                    os.dup2(file.fileno(), int(link.name))
    assert not theirs.exists() or theirs.read_bytes() == b""


def in_a_thread() -> None:
    thread = threading.Thread(target=lambda: torch.ones(10).sum())
    thread.start()
    thread.join()


DEEDS = {
    "fork": fork,
    "fork-torch": lambda: fork("torch"),
    "subprocess": lambda: subprocess.run(["true"], check=True),
    "thread": in_a_thread,
    "close-ours": close_ours,
    "chdir": lambda: os.chdir("/"),
    "umask": lambda: os.umask(0o777),
    "environment": lambda: os.environ.pop("PRISMDBG_CONFIG", None),
    "collect": gc.collect,
    "signals-to-default": lambda: [signal.signal(n, signal.SIG_DFL) for n in (signal.SIGPIPE, signal.SIGURG)],
}


def wait_for_go(phase: int) -> None:
    (SIGNS / f"ready.{RANK}.{phase}").touch()
    go, end = SIGNS / f"go.{phase}", time.monotonic() + 120
    while not go.exists():
        assert time.monotonic() < end, "nobody said go within 120 s"
        time.sleep(0.005)
    deed = DEEDS.get(go.read_text())
    if deed is not None:
        deed()


def main() -> None:
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    (SIGNS / f"pid.{RANK}").write_text(str(os.getpid()))
    is_first = not int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    how = (
        {} if "MASTER_PORT" in os.environ else {"init_method": f"file://{SIGNS}/met", "rank": RANK, "world_size": WORLD}
    )
    dist.init_process_group("gloo", **how)
    torch.manual_seed(RANK)
    weights = torch.zeros(64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.01)
    done, progress = 0, os.open(SIGNS / f"progress.{RANK}", os.O_WRONLY | os.O_CREAT, 0o600)
    for phase in range(PHASES):
        wait_for_go(phase)
        if is_first and RANK == 1 and os.environ.get("FAIL_IN") == str(phase):
            os.kill(os.getpid(), signal.SIGKILL) if phase % 2 else sys.exit(7)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (weights * torch.randn(64) + weights.square()).sum().backward()
            dist.all_reduce(weights.grad)
            optimizer.step()
            done += 1
            os.pwrite(progress, done.to_bytes(8, "little"), 0)
    digest = hashlib.sha256(weights.detach().numpy().tobytes()).hexdigest()[:16]
    (SIGNS / f"result.{RANK}").write_text(digest)
    print(f"result {RANK} {digest}\n", end="", flush=True)
    dist.destroy_process_group()


main()
