"""How a rank describes its process groups in its log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MESH = """
import json, sys, torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh
from prismdbg.rank.emulation import fake_world
from prismdbg.rank.recording.recorded_rank import describe_group
if sys.argv[2] == "fake":
    fake_world.install()
dist.init_process_group(init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
print(json.dumps([describe_group(group) for group in c10d._world.pg_map]))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("world", ["real", "fake"])
def test_the_backend_that_torch_chose_is_named(world: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", MESH, tmp_path / "met", world], capture_output=True, text=True, timeout=120, check=True
    )
    assert {group["backend"] for group in json.loads(ended.stdout)} == {"gloo"}
