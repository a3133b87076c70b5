"""`skopeo`, the program that copies images to and from registries: bounded, with its errors in the user's terms.

It knows logins (also those of `docker login` and of credential helpers), certificates, mirrors and proxies.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from prismdbg.errors import FacilityError, PrismError, UsageError, shortened

STALLED_S = 300.0  # a registry before an object store says nothing for minutes while it stores a large layer
_LOOK_S = 0.2
_SAID = 300  # characters of what it says
_SAID_BYTES = 1 << 16
_POLICIES = (Path("/etc/containers/policy.json"), Path("~/.config/containers/policy.json"))

Moved = Callable[[int], int]  # bytes so far, by skopeo's process id
More = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Registry:
    """`text`: the whole address, for messages."""

    text: str
    host: str


@dataclass(frozen=True, slots=True)
class _Cause:
    """`said`: what skopeo, Go or the registry says then. `what` and `hint` have `{host}`."""

    said: str
    what: str
    hint: str
    kind: type[PrismError] = FacilityError


# The first that is found in what skopeo says. Its languages and its registries' have English texts alone.
_CAUSES = (
    _Cause("manifest unknown|name unknown", "nothing is there", "check name and tag", UsageError),
    _Cause("no such host|server misbehaving", "host {host} was not found", "check its name, and the network"),
    _Cause(
        "connection refused|no route to host|network is unreachable|dial tcp.*i/o timeout",
        "nothing answers at {host}",
        "check host, port and network",
    ),
    _Cause(
        "gave HTTP response to HTTPS client",
        "{host} has no TLS",
        "give it a certificate, or name it as insecure in /etc/containers/registries.conf",
    ),
    _Cause(
        "x509|certificate|tls: ",
        "the certificate of {host} is not accepted",
        "put the certificate of its authority into /etc/containers/certs.d/{host}/ca.crt",
    ),
    _Cause(
        "unauthorized|authentication required|invalid username/password|status: 401",
        "{host} wants a login, or refuses yours",
        "log in: skopeo login {host}, or docker login {host}",
    ),
    _Cause(
        "denied|[Ff]orbidden|status: 403",
        "{host} does not allow it",
        "log in as a user with this right: skopeo login {host}, or docker login {host}",
    ),
    _Cause(
        "StatusCode: 413|status: 413|Too Large", "the layer is too large for {host}", "raise the limit of its proxy"
    ),
    _Cause("toomanyrequests|status: 429", "{host} takes no more requests now", "wait, or log in"),
    _Cause(
        "status: 5[0-9][0-9]|StatusCode: 5[0-9][0-9]",
        "{host} failed",
        "check the registry's log, and the space on its disk",
    ),
    _Cause(
        r"\bEOF\b|connection reset|broken pipe|closed network connection|i/o timeout|deadline exceeded",
        "the connection to {host} broke",
        "try again: what {host} has stored is not copied again",
    ),
    _Cause("no space left on device", "the disk is full", "free some space, or set TMPDIR to a larger disk"),
)


def require() -> str:
    """Its path. `FacilityError` where it is missing."""
    if (path := shutil.which("skopeo")) is None:
        raise FacilityError(
            "skopeo is missing, which copies images to and from registries", hint="install it: apt-get install skopeo"
        )
    return path


def output(registry: Registry, arguments: Sequence[str]) -> bytes:
    """What it prints. Errors as of `run`."""
    with TemporaryFile() as out:
        run(registry, arguments, Path.cwd(), lambda _: 0, lambda _: None, out)
        out.seek(0)
        return out.read()


def run(
    registry: Registry,
    arguments: Sequence[str],
    folder: Path,
    moved: Moved,
    more: More,
    out: BinaryIO | None = None,
) -> None:
    """In `folder`. `more` is told the bytes that came since. `FacilityError` where it is missing, fails, or moves no
    byte for `STALLED_S`; `UsageError` where nothing is at the address."""
    with TemporaryFile() as said:
        with _started([*_policy(), *arguments], folder, out, said) as process:
            _follow(registry, process, moved, more)
        if process.returncode:
            said.seek(0)
            raise failure(registry, said.read(_SAID_BYTES).decode(errors="replace"))


@contextmanager
def _started(
    arguments: Sequence[str], folder: Path, out: BinaryIO | None, said: BinaryIO
) -> Iterator[subprocess.Popen[bytes]]:
    """Ends with the block, also where that is interrupted."""
    command = [require(), *arguments]
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out or subprocess.DEVNULL, stderr=said
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _policy() -> list[str]:
    """Without a policy for signatures skopeo copies nothing; a site's own is kept."""
    return [] if any(path.expanduser().exists() for path in _POLICIES) else ["--insecure-policy"]


def _follow(registry: Registry, process: subprocess.Popen[bytes], moved: Moved, more: More) -> None:
    so_far, since = 0, time.monotonic()
    while not _ended(process):
        now = moved(process.pid)
        if now > so_far:
            more(now - so_far)
            so_far, since = now, time.monotonic()
        elif time.monotonic() - since > STALLED_S:
            raise FacilityError(
                f"{registry.text}: {registry.host} did not go on for {STALLED_S:.0f} s", hint="check it, and try again"
            )
        else:
            more(0)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LOOK_S)
    return process.returncode is not None


def failure(registry: Registry, said: str) -> PrismError:
    """What went wrong, by skopeo's last words."""
    fatal = re.findall(r'level=fatal msg="((?:[^"\\]|\\.)*)"', said)
    text = re.sub(r"\\(.)", r"\1", fatal[-1]) if fatal else said.strip()
    for cause in _CAUSES:
        if re.search(cause.said, text):
            what = cause.what.format(host=registry.host)
            return cause.kind(f"{registry.text}: {what}", hint=cause.hint.format(host=registry.host))
    plain = re.sub(r"\?[^\s\"]+", "", text)  # addresses of uploads can be signed: who has one may use it
    return FacilityError(f"{registry.text}: skopeo failed: {shortened(plain, _SAID)}", hint="check the registry")


def read_so_far(pid: int) -> int:
    """How far the process has read the largest file of an image that it has open (proc_pid_fdinfo(5))."""
    return max((_position(pid, link) for link in _open_files(pid)), default=0)


def _open_files(pid: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{pid}/fd").iterdir())
    return []


def _position(pid: int, link: Path) -> int:
    """0 where it is no blob, or closed by now."""
    with contextlib.suppress(OSError, ValueError):
        if "/blobs/sha256/" in str(link.readlink()):
            return int(Path(f"/proc/{pid}/fdinfo/{link.name}").read_text().split()[1])
    return 0
