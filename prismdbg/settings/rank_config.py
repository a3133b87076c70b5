"""What a rank is told by whoever started it: one JSON file named by PRISMDBG_CONFIG."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.model.private_file import PRIVATE, private

ENVIRONMENT_NAME = "PRISMDBG_CONFIG"
_TUPLES = ("ranks", "user_code", "secret_names", "secret_values")
SPAWNED_VARIABLE = "PRISMDBG_SPAWNED"  # in a replay, for the first process alone: what multiprocessing gave the rank
FORKED_VARIABLE = "PRISMDBG_FORKED"  # so, too: the forks by which the rank came about, one a line
RANK_MEMORY = "memory"  # the trace in a rank's folder
CAP_DETAILS = "What it holds: "  # in a recorded rank the end of the exception that a cap on memory raises


class Mode(StrEnum):
    RECORD = "record"
    REPLAY = "replay"
    EMULATE = "emulate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankConfig:
    """`window_steps`: 0 records no payloads, -1 all, else that many steps back. Paths are absolute.

    ranks: record only these (all when empty). log: in a replay, the folder with the recorded log.
    memory: operators, allocations and frees are traced from the start. memory_cap: bytes of the program's own, 0: none.
    user_code: paths of the user's own code, see `model/user_code.py`.
    secret_names, secret_values: rules of the user's own, see `capsule/secrets/own_rules.py`.
    seeds: what random generators begin with (`rank/recording/inputs/seeds.py`).
    state_every: a state snapshot every so many steps, 0: none.
    sketches: of what is sent, for a comparison by tolerance (`model/sketch.py`).
    node: the name of the rank's node in a job of several supervisors; empty in any other.
    local: a folder of this node, laid out as RUN, that takes what the rank writes; empty: RUN takes it.
    first_attempt: which number its first log folders have, in a job that its scheduler has started again.
    log_bytes: to which its supervisor shortens the log of a rank; 0: nothing goes.
    supervisor: who that is, as `process_identity.this_process` says it.
    socket_dir: where agents listen, `<rank>[.<attempt>].sock`; short, for a Unix socket path ends at 108 bytes.
    """

    mode: Mode
    socket_dir: str
    run: str = ""
    local: str = ""
    cache_dir: str = ""
    ranks: tuple[int, ...] = ()
    window_steps: int = 0
    window_bytes: int = 4 << 30
    log_bytes: int = 0
    checkpoint_every: int = 0
    state_every: int = 0
    stacks: bool = True
    fingerprints: bool = True
    nan_check: bool = True
    sketches: bool = False
    state_hash_at_exit: bool = True
    native: bool = True
    memory: bool = False
    memory_cap: int = 0
    event_segment_bytes: int = 4 << 20
    payload_segment_bytes: int = 64 << 20
    log: str = ""
    node: str = ""
    first_attempt: int = 0
    user_code: tuple[str, ...] = ()
    secret_names: tuple[str, ...] = ()
    secret_values: tuple[str, ...] = ()
    rank: int = -1
    world_size: int = 0
    seeds: dict[str, Any] = field(default_factory=dict)
    supervisor: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> str:
        """Where this rank's log and all else that it writes lie."""
        return self.local or self.run

    @property
    def payload_window(self) -> tuple[bool, int, int]:
        """on, steps (0: no limit), bytes. With checkpoints or state snapshots at least what follows the older
        one is kept, too: the supervisor or the rank itself says from which step on."""
        on = bool(self.checkpoint_every or self.state_every or self.window_steps)
        steps = 0 if self.window_steps < 0 else max(self.window_steps, int(on))
        return on, steps, self.window_bytes

    def save(self, path: Path, mode: int = PRIVATE) -> None:
        with open(path, "w", opener=private) as file:
            os.fchmod(file.fileno(), mode)
            file.write(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> RankConfig:
        """Raises `UsageError` for a file that is not such a configuration."""
        try:
            data = json.loads(path.read_text())
            data["mode"] = Mode(data["mode"])
            data |= {name: tuple(data.get(name, ())) for name in _TUPLES}
            return cls(**data)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{path} is not a rank configuration: {error}",
                hint="record again: the file was altered, or is of another version",
            ) from error


def from_environment() -> RankConfig | None:
    path = os.environ.get(ENVIRONMENT_NAME)
    return RankConfig.load(Path(path)) if path else None
