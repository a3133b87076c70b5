"""A real sshd for one test: on a free port of the loopback interface, with keys of its own."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import wait_for

SSHD = "/usr/sbin/sshd"
_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {home}/host
AuthorizedKeysFile {home}/user.pub
PidFile {home}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""


def why_impossible() -> str:
    missing = [tool for tool in ("ssh", "ssh-keygen", "rsync", SSHD) if shutil.which(tool) is None]
    return f"needs {', '.join(missing)} (openssh-server, rsync)" if missing else ""


@contextmanager
def own_sshd(home: Path) -> Iterator[str]:
    """The command that connects to it: `ssh` with its options. The host is `127.0.0.1`."""
    home.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name)], check=True, timeout=30)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (home / "config").write_text(_CONFIG.format(port=port, home=home))
    Path("/run/sshd").mkdir(exist_ok=True)  # where it gives up its rights; Debian makes it when the service starts
    with (home / "said.txt").open("wb") as said:
        daemon = subprocess.Popen([SSHD, "-D", "-e", "-f", str(home / "config")], stderr=said, stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: _listens(port) or daemon.poll() is not None, 30, "sshd to listen")
        assert daemon.poll() is None, (home / "said.txt").read_text()
        own = ["-F", "/dev/null", "-i", str(home / "user"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
        trust = ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={home}/known", "-l", getpass.getuser()]
        yield " ".join(["ssh", "-p", str(port), *own, *trust])
    finally:
        daemon.terminate()
        daemon.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0
