"""A world with nobody else in it, whatever torch is told to check."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch.distributed as dist
from prismdbg.rank.emulation import fake_world
fake_world.install()
dist.init_process_group("gloo", rank=1, world_size=4)
dist.new_group([1, 2])
dist.new_subgroups(2)
print(dist.get_debug_level().name)
"""


@pytest.mark.parametrize("level", ["DETAIL", "OFF"])
def test_no_group_waits_for_ranks_and_the_level_stays(level: str) -> None:
    """At DETAIL torch compares what the ranks of a group call, over sockets of gloo."""
    environment = {**os.environ, "TORCH_DISTRIBUTED_DEBUG": level}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout.split()) == (0, [level]), ran.stderr


TIMEOUTS = """
from datetime import timedelta
import torch
import torch.distributed as dist
from prismdbg.rank.emulation import fake_world
if {before}:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=7))
    fake_world.install()
else:
    fake_world.install()
    dist.init_process_group("gloo", rank=1, world_size=4, timeout=timedelta(seconds=7))
groups = [dist.group.WORLD, dist.new_group([dist.get_rank()], timeout=timedelta(seconds=5)), dist.new_group()]
print(*(fake_world.timeout_of(group).total_seconds() for group in groups))
backends = [group._get_backend(torch.device("cpu")) for group in groups]
print(*(backend.options._timeout.total_seconds() for backend in backends))
"""


@pytest.mark.parametrize("before", [False, True])
def test_a_group_has_the_timeout_that_the_program_gave_it(before: bool) -> None:
    """Whether it was made before, as in a restored rank, or in this world. Pipelines ask its backend for it."""
    program = TIMEOUTS.format(before=before)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.splitlines() == ["7.0 5.0 1800.0"] * 2, ran.stderr


BACKENDS = """
import sys
import torch.distributed as dist
where = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
if sys.argv[1] == "fake":
    from prismdbg.rank.emulation import fake_world
    where = {"rank": 1, "world_size": 2}
    fake_world.install()
dist.init_process_group(sys.argv[2] or None, **where)
others = [dist.new_group([dist.get_rank()], backend=name) for name in (None, "cpu:gloo", "gloo")]
for group in (dist.group.WORLD, *others):
    asked = dist.get_backend(group), dist.get_backend_config(group), dist.get_backend(group) is dist.Backend.GLOO
    print(*asked, group._get_backend_name())
"""


def _shown(world: str, backend: str) -> str:
    line = [sys.executable, "-c", BACKENDS, world, backend]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("backend", ["", "gloo", "cpu:gloo", "cpu:gloo,cuda:gloo"])
def test_a_group_names_its_backend_as_a_real_one_does(backend: str) -> None:
    """torch itself chooses its collectives by these names."""
    assert _shown("fake", backend) == _shown("real", backend)


def test_a_group_names_a_backend_that_this_machine_lacks() -> None:
    world, *_ = _shown("fake", "cpu:gloo,cuda:nccl").splitlines()
    assert world == "cpu:gloo,cuda:nccl cpu:gloo,cuda:nccl False nccl"


MESH = """
import torch
import torch.distributed as dist
from prismdbg.rank.emulation import fake_world
torch.accelerator.is_available = torch.cuda.is_initialized = lambda: True
torch.accelerator.current_accelerator = lambda *_: torch.device("cuda")
torch.accelerator.device_count = lambda: 1
fake_world.install()
dist.init_process_group("nccl", rank=1, world_size=4, device_id=torch.device("cuda", 0))
mesh = dist.init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
groups = [mesh.get_group("dp"), mesh.get_group("tp"), dist.split_group(mesh.get_group("dp"), [[1, 0]])]
for group in groups:
    print(dist.get_process_group_ranks(group), group.rank(), dist.get_backend(group), group.bound_device_id, end=" ")
    name = dist.distributed_c10d._get_process_group_name(group)
    print(len(name), dist.distributed_c10d._resolve_process_group(name) is group)
print(dist.split_group(split_ranks=[[2, 3]]))
dist.destroy_process_group()
"""


def test_a_group_is_split_as_a_backend_of_devices_does() -> None:
    """A mesh splits the world's group if that is bound to a device. The functions that find one are replaced."""
    ran = subprocess.run([sys.executable, "-c", MESH], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "[1, 3] 0 nccl cuda:0 40 True",
        "[0, 1] 1 nccl cuda:0 40 True",
        "[1, 3] 0 nccl cuda:0 40 True",
        "None",
    ]
