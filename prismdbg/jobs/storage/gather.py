"""The runs of one job's nodes that see no common folder become one RUN: they are copied, over ssh by rsync, and put
together. What was copied is as untrusted as any run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prismdbg.capsule.partial import partial_folder, publish_new
from prismdbg.errors import FacilityError, UsageError
from prismdbg.jobs.storage.inner_links import drop_others
from prismdbg.jobs.storage.job_nodes import is_shared, job_file, node_folders
from prismdbg.jobs.storage.run_folder import TELEMETRY, RunFolder, read_json, write_json
from prismdbg.model.meanwhile import Tell, working
from prismdbg.model.plurals import counted
from prismdbg.model.sizes import size

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
STALL_S = 120  # without a byte, and the copy is given up
_SAID = 300  # characters of what rsync says
_PROGRESS = re.compile(r" *([0-9][0-9.,]*) +([0-9]{1,3})%")  # bytes, with separators of thousands, and of all
_TOTAL = re.compile(r"Total file size: ([0-9.,]+) bytes")
_UNIONS = (
    "nodes",
    "ranks",
    "capsules",
    "checkpoints",
    "states",
    "stacks",
    "memory",
    "overwritten",
    "incidents",
    TELEMETRY,
)

Say = Callable[[str], None]


def gather(sources: Sequence[str], output: Path, say: Say, ssh: str = SSH) -> RunFolder:
    """`sources`: `HOST:RUN`, or a RUN of this machine. `UsageError` where they are not of one job; nothing is left of
    what was copied then."""
    if output.exists():
        raise UsageError(f"{output} already exists", hint="choose a new folder, or remove it with `prismdbg rm`")
    if (rsync := shutil.which("rsync")) is None:
        raise FacilityError("rsync is not installed", hint="install it here and on the nodes (apt-get install rsync)")
    final = output.resolve()
    with partial_folder(final) as partial:
        whole: RunFolder | None = None
        for number, source in enumerate(sources):
            say(f"copying {source}")
            copied = RunFolder(partial / f".copied.{number}")
            copied.path.mkdir(mode=0o700)
            with working() as tell:
                line = _line(rsync, source, copied.path, ssh)
                _require_room(source, line, copied.path, ssh)
                _run(source, line, ssh, _teller(tell, f"{source} ({number + 1} of {len(sources)})"))
            _drop_links(copied, source, say)
            if not copied.run_json.is_file():
                raise UsageError(f"{source} is not a run folder", hint="give the folder that `record` wrote (-o)")
            _name_capsules(copied, whole, final)
            if whole is None:
                whole = copied
            else:
                _add(whole, copied, sources[0], source)
        if whole is None:
            raise UsageError("no run to gather", hint="give one HOST:RUN for each node")
        _drop_links(whole, "the nodes together", say)
        publish_new(whole.path, final)
    return RunFolder(final)


def _drop_links(run: RunFolder, source: str, say: Say) -> None:
    """Those that lead out of it: the node says what it sends, and rsync leaves them out only as far as it sees. In the
    whole a link of one node may lead through a link of another."""
    if dropped := drop_others(run.path):
        say(f"{source}: left out {counted(dropped, 'link')} that lead out of the run or nowhere")


def _teller(tell: Tell, source: str) -> Tell:
    """Of a line in which rsync says how far all of its copying is."""

    def say(line: str) -> None:
        if match := _PROGRESS.match(line):
            tell(f"copying {source}: {size(int(re.sub(r'[^0-9]', '', match[1])))}, {match[2]} %")

    return say


def _line(rsync: str, source: str, target: Path, ssh: str) -> list[str]:
    if source.startswith("-"):
        raise UsageError(f"{source} is neither HOST:RUN nor a folder", hint="write it as node1:/path/of/RUN")
    options = ["--recursive", "--links", "--safe-links", "--times", "--perms", "--chmod=D700,F600", "--secluded-args"]
    options += ["--info=progress2", "--no-inc-recursive"]  # what is left is known from the start
    return [rsync, *options, f"--timeout={STALL_S}", f"--rsh={ssh}", "--", f"{source.rstrip('/')}/", f"{target}/"]


def _require_room(source: str, line: Sequence[str], target: Path, ssh: str) -> None:
    """`FacilityError` before anything is copied that does not fit. An rsync that does not say the size is believed."""
    said: list[str] = []
    _run(source, [line[0], "--dry-run", "--stats", "--no-human-readable", *line[1:]], ssh, said.append)
    found = next(filter(None, map(_TOTAL.match, said)), None)
    needed = int(re.sub(r"[^0-9]", "", found[1])) if found else 0
    free = shutil.disk_usage(target).free
    if needed > free:
        raise FacilityError(
            f"{source} has {size(needed)}, and {target.parent.parent} has room for {size(free)}",
            hint="free some space, or write to a larger disk; what is uploaded is put together in TMPDIR first",
        )


def _run(source: str, line: Sequence[str], ssh: str, told: Tell) -> None:
    code, errors = _followed(line, told)
    if code:
        said = [text for text in errors.splitlines() if text.strip()]
        raise FacilityError(
            f"{source} cannot be copied: {said[0][:_SAID] if said else f'rsync ended with {code}'}",
            hint=f"try the same by hand: rsync --rsh={shlex.quote(ssh)} --list-only {shlex.quote(source)}/",
        )


def _followed(line: Sequence[str], told: Tell) -> tuple[int, str]:
    """The exit code, and what was written to standard error. `told`: of each line of standard output, at once."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None, "it is a pipe"
        try:
            for text in process.stdout:  # a carriage return ends a line, too
                told(text)
        except BaseException:
            process.kill()
            raise
        code = process.wait()
        errors.seek(0)
        return code, errors.read().decode(errors="replace")


def _add(whole: RunFolder, other: RunFolder, first: str, source: str) -> None:
    """Moves what the other one has of its own. The files that a job has once are those of the first."""
    for run, name in ((whole, first), (other, source)):
        if not is_shared(run):
            raise UsageError(
                f"{name} was recorded as a job of one node",
                hint="record each node with torchrun --nnodes, under srun, or with the same --job-id",
            )
    ids = [str(read_json(job_file(run.nodes)).get("id", "")) for run in (whole, other)]
    if ids[0] != ids[1]:
        raise UsageError(
            f"{source} is of another job than {first} ({ids[1]} and {ids[0]})", hint="give the runs of one job"
        )
    for folder in _UNIONS:
        if (other.path / folder).is_dir():
            _unite(other.path / folder, whole.path / folder, first, source)


def _unite(source: Path, target: Path, first: str, name: str) -> None:
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target.name} of {first} is not a folder", hint="remove it there, or leave this node out")
    target.mkdir(exist_ok=True, mode=0o700)
    for path in source.iterdir():
        if not (target / path.name).exists():
            path.rename(target / path.name)
        elif target.name in ("ranks", "nodes") and path.is_dir() and not path.name.startswith("."):
            raise UsageError(
                f"{target.name}/{path.name} is in {first} and in {name}",
                hint="give each node once; host names must differ, and so must the ranks",
            )


def _name_capsules(run: RunFolder, whole: RunFolder | None, final: Path) -> None:
    """Gives each a name that is free in the whole. The ledgers name them by their paths on the node."""
    names = {}
    for path in list(run.capsules.iterdir()) if run.capsules.is_dir() else ():
        new, number = path.name, 1
        while whole is not None and (whole.capsules / new).exists():
            number += 1
            new = f"{path.name}-{number}"
        path.rename(run.capsules / new)
        names[path.name] = str(final / run.capsules.name / new)
    for node in node_folders(run):
        if report := read_json(node.supervisor_json):
            write_json(node.supervisor_json, _renamed(report, names))


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, names) for one in value]
    if isinstance(value, str) and value.startswith("/"):
        return names.get(Path(value).name, value)
    return value
