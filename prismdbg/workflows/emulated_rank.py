"""One run of one emulated rank: its process, its environment, and whether what it left is worth anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismdbg.capsule.log_reader import read_log
from prismdbg.errors import RankLost, UsageError, WaitTimeout
from prismdbg.rank.config import RankConfig
from prismdbg.rank.emulation.settings import NEED_EXIT
from prismdbg.workflows.injection import job_environment
from prismdbg.workflows.run_folder import RunFolder, rank_of, read_json

END_BOUND_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRun:
    """What came of it. `lacking`: the value without which it could not go on."""

    rank: int
    code: int
    wall_s: float
    lacking: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedRank:
    """`per_node`: ranks on one node, for LOCAL_RANK. bound_s: how long its program may take."""

    run: RunFolder
    command: tuple[str, ...]
    rank: int
    world: int
    per_node: int
    steps: int
    bound_s: float

    @property
    def needs(self) -> Path:
        return self.run.path / "needs.json"

    def start(self, config: RankConfig) -> RankRun:
        """Runs the program to its end. An earlier run of the same rank is removed: it lacked something."""
        for folder in self._folders():
            shutil.rmtree(folder)
        self.needs.unlink(missing_ok=True)
        config.save(self.run.config)
        began = time.monotonic()
        code = self._process()
        lacking = read_json(self.needs) if code == NEED_EXIT else None
        if lacking is None:
            self._check_end(code)
        return RankRun(rank=self.rank, code=code, wall_s=time.monotonic() - began, lacking=lacking)

    def _folders(self) -> list[Path]:
        return [folder for folder in self.run.rank_folders() if rank_of(folder) == self.rank]

    def _process(self) -> int:
        environment = {
            **job_environment(self.run.inject, self.run.config, os.environ),
            **rank_environment(self.rank, self.world, self.per_node),
        }
        try:
            process = subprocess.Popen(self.command, env=environment)
        except OSError as error:
            raise UsageError(f"the program cannot be started: {error}", hint="give the command after `--`") from error
        try:
            return process.wait(self.bound_s)
        except subprocess.TimeoutExpired:
            raise WaitTimeout(
                f"waited {self.bound_s:g} s for rank {self.rank}'s program to end",
                hint="give --steps, or a longer --timeout",
            ) from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(END_BOUND_S)

    def _check_end(self, code: int) -> None:
        """A program that failed, ended early or did nothing is an error: its log is no picture of the job."""
        folders = self._folders()
        if not folders:
            raise RankLost(
                f"rank {self.rank}'s program ended with code {code} before it issued a collective or a step",
                hint="does it call torch.distributed.init_process_group? its output is above",
            )
        steps = read_log(folders[-1]).steps
        reached = steps[-1].step if steps else 0
        if code:
            raise RankLost(
                f"rank {self.rank}'s program failed with code {code} in step {reached}",
                hint=f"its output is above; what it did until then: prismdbg status {self.run.path}",
            )
        if self.steps and reached < self.steps:
            shorter = f"give --steps {reached}" if reached else "leave out --steps: it takes no optimizer step"
            raise RankLost(
                f"rank {self.rank}'s program ended after {reached} of {self.steps} steps",
                hint=f"{shorter}, or let the program run longer",
            )


def rank_environment(rank: int, world: int, per_node: int) -> Mapping[str, str]:
    """What torchrun would set for this rank."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_RANK": str(rank // per_node),
        "GROUP_WORLD_SIZE": str(-(-world // per_node)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "emulated",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }
