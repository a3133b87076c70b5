"""Worlds that a program begins one after another: names of their groups in the log and in torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
PROGRAM = """
import sys
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh

from prismdbg.rank.c10d import worlds
from prismdbg.rank.replay.membership import ranks_of


class EmptyLog:
    groups = {}


begun = []
made = []
worlds.follow(begun.append, lambda: made.append(dist.get_world_size()))
for world in range(3):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/{world}", rank=0, world_size=1)
    in_log = worlds.name_of(dist.group.WORLD)
    print(dist.group.WORLD.group_name, in_log, worlds.torch_name(in_log), ranks_of(in_log, EmptyLog))
    dist.destroy_process_group(dist.new_group([0]))
    END
init_device_mesh("cpu", (1,))
print(begun, made)
"""


@pytest.mark.parametrize("end", ["dist.destroy_process_group()", "c10d._abort_process_group()"])
def test_later_worlds_have_names_of_their_own_in_the_log(end: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.replace("END", end), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=ALONE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "0 0 0 [0]",
        "0 0~2 0 [0]",
        "0 0~3 0 [0]",
        "['~2', '~3', '~4'] [1, 1, 1, 1]",
    ]
