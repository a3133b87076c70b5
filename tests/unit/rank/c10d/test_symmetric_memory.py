"""Symmetric memory: what ranks exchange through it is not recorded, so it is noted, and a replay refuses it at once."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import torch
from torch._C._distributed_c10d import _SymmetricMemory as memory
memory.empty_strided_p2p = staticmethod(lambda *_: torch.ones(2))
memory.rendezvous = staticmethod(lambda *_: "met")
from prismdbg.rank.c10d import unknown_ops
unknown_ops.install(lambda *noted: print(*noted))
assert "torch.distributed._symmetric_memory" not in sys.modules
from torch.distributed import _symmetric_memory as symmetric
for _ in range(2):
    print(symmetric.rendezvous(symmetric.empty(2), "0"))
unknown_ops.install(unknown_ops.refuse)
for _ in range(2):
    try:
        symmetric.rendezvous(torch.ones(2), "0")
    except Exception as error:
        print(type(error).__name__, error, "|", error.hint)
unknown_ops.install(None)
print(symmetric.rendezvous(torch.ones(2), "0"))
"""
WHY = "ranks exchange data through symmetric memory past the collectives"
REFUSED = (
    "FacilityError the program calls rendezvous of torch's symmetric memory, which virtual peers cannot answer: "
    f"{WHY} | run the program without symmetric memory (asynchronous tensor parallelism)"
)


def test_it_is_noted_once_and_refused_where_peers_are_virtual() -> None:
    """With functions in place of those of C++, which need a GPU."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        f"symmetric_memory::empty_strided_p2p {WHY}",
        f"symmetric_memory::rendezvous {WHY}",
        "met",
        "met",
        REFUSED,
        REFUSED,
        "met",
    ]
