"""The installed files a run's ranks stand on: looked up once, for it takes a look at every file of the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from prismdbg.capsule import checked_json
from prismdbg.capsule.rank_json import RankJson, required
from prismdbg.jobs.storage.ranks_alive import is_alive
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.environment_scan import scan


def environment_of(run: RunFolder, folder: Path) -> Environment:
    """Kept in the run folder by whoever asks first; a live rank shows what it has mapped, too."""
    if run.environment.exists():
        return Environment.from_json(checked_json.read(run.environment))
    rank = read_json(folder / "rank.json")
    required(cast(RankJson, rank), "executable", "prefix", "base_prefix", "sys_path")
    pid = rank.get("pid", 0)
    environment = scan(rank, pid if is_alive(pid) else None)
    write_json(run.environment, environment.to_json(), indent=None)
    return environment
