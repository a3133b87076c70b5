"""A small process with what every rank has (a thread that answers on a Unix socket, a TCP connection to itself, a file
open for writing, output), and no torch. Run as `counting_rank.py SOCKET JOURNAL`.

One JSON line per request: `status`, `journal`, `write PATH`, `append PATH`, `size PATH`, `read PATH`, `end CODE`,
`run CODE` (Python in hexadecimal, which leaves its answer in `found`).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

COUNT_S = 0.01


class CountingRank:
    def __init__(self, path: Path, journal: Path, address: str = "127.0.0.1") -> None:
        self.count = 0
        self.code: int | None = None
        self.changed = threading.Condition()
        self.journal = journal.open("w")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        server = socket.create_server((address, 0), family=family)
        self.near = socket.create_connection(server.getsockname()[:2])
        self.far, _ = server.accept()
        self.server = server
        path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(4)
        threading.Thread(target=self.serve, daemon=True).start()

    def run(self) -> int:
        with self.changed:
            while self.code is None:
                self.count += 1
                self.journal.write(f"{self.count}\n")
                self.journal.flush()
                if self.count % 10 == 0:
                    print("counted to", self.count, flush=True)
                self.changed.wait(COUNT_S)
            return self.code

    def serve(self) -> None:
        while True:
            client, _ = self.listener.accept()
            with client, client.makefile("rw") as stream:
                for line in stream:
                    stream.write(json.dumps(self.answer(*line.split())) + "\n")
                    stream.flush()
                    if line.startswith("end"):
                        self.end(int(line.split()[1]))

    def end(self, code: int) -> None:
        with self.changed:
            self.code = code
            self.changed.notify()

    def answer(self, verb: str, *words: str) -> dict[str, object]:
        if verb == "write":
            try:
                Path(words[0]).write_text("written by the rank")
            except OSError as error:
                return {"error": str(error)}
        if verb == "append":
            with Path(words[0]).open("a") as file:
                file.write(f"{self.count}\n")
        if verb == "run":
            found: dict[str, object] = {}
            try:
                exec(bytes.fromhex(words[0]).decode(), found)
            except Exception as error:
                return {"error": f"{type(error).__name__}: {error}"}
            return {"found": found.get("found")}
        if verb == "journal":
            return {"path": self.journal.name}
        if verb == "read":
            return {"text": Path(words[0]).read_text() if Path(words[0]).exists() else None}
        if verb == "size":
            return {"size": Path(words[0]).stat().st_size if Path(words[0]).exists() else None}
        lines = [line.split(maxsplit=1) for line in Path("/proc/self/status").read_text().splitlines()]
        status = {fields[0].rstrip(":"): fields[1] for fields in lines if len(fields) == 2}
        return {
            "pid": os.getpid(),
            "count": self.count,
            "cap_eff": int(status["CapEff"], 16),
            "cap_bnd": int(status["CapBnd"], 16),
            "no_new_privs": status["NoNewPrivs"],
            "interfaces": [name for _, name in socket.if_nameindex()],
            "processes": sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()),
            "hostname": socket.gethostname(),
            "uid": os.getuid(),
            "color": os.environ.get("COLOR", ""),
        }


if __name__ == "__main__":
    sys.exit(CountingRank(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]).run())
