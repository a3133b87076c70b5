"""Takes what it computes with from other programs: git, one that fails, one that lies beside this file, and one that
gives something else each time.

torchrun --nproc-per-node 2 asks_programs.py
"""

import os
import subprocess
from pathlib import Path

import torch
import torch.distributed as dist
from prismdbg_hooks import restore_point

HERE = Path(__file__).parent


def number_of_commit() -> int:
    text = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=HERE, text=True)
    return int(text.strip(), 16) % 1009


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    commit = number_of_commit()
    failed = subprocess.run(["sh", "-c", "test -e marker; exit $((4 - $?))"], cwd=HERE).returncode
    beside = int(subprocess.run([HERE / "beside"], capture_output=True, check=True).stdout)
    status = os.waitstatus_to_exitcode(os.system(f"test -e '{HERE}/marker'"))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    count = f"echo >> count-{rank}; wc -l < count-{rank}"
    first = restore_point(model=model, optimizer=optimizer) or 0
    for _ in range(first, 8):
        optimizer.zero_grad()
        model(torch.ones(4)).sum().backward()
        lines = int(subprocess.getoutput(f"cd '{HERE}'; {count}"))
        dist.all_reduce(torch.tensor([commit, failed, beside, status, lines]))
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
