"""One rank that issues many collectives: `many.py RENDEZVOUS COUNT [FOLDER]`.

With FOLDER it makes `ready` there after the first three, waits for `go`, and leaves its result in `result`.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def wait_for_go(folder: Path) -> None:
    (folder / "ready").touch()
    end = time.monotonic() + 60
    while not (folder / "go").exists():
        assert time.monotonic() < end, "nobody said go within 60 s"
        time.sleep(0.01)
    import colorsys  # noqa: F401  a module that nobody imported before: every folder on the path is asked


dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
total = torch.zeros(1, dtype=torch.float64)
for number in range(int(sys.argv[2])):
    if number == 3 and len(sys.argv) > 3:
        wait_for_go(Path(sys.argv[3]))
    x = torch.full((100,), float(number), dtype=torch.float64)
    dist.all_reduce(x)
    total += x.mean()
result = f"result {total.item()}"
print(result, flush=True)
dist.destroy_process_group()
if len(sys.argv) > 3:
    (Path(sys.argv[3]) / "result").write_text(result)
