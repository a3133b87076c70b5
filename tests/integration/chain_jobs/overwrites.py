"""A small training that goes on from what an earlier run left, and then writes over it, in each way there is: in place,
by a rename, by adding to it, by `torch.save`; and it removes a file."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

STEPS = 4


def main() -> None:
    home = Path(sys.argv[1])
    state = json.loads((home / "state.json").read_text())
    dist.init_process_group("gloo")
    rate = float((home / "rate.txt").read_text())
    counted = "12" if dist.get_rank() else count(home / "counter.txt")
    once = (home / "once.txt").read_text()
    torch.manual_seed(state["seed"])
    model = torch.nn.Linear(16, 16)
    model.load_state_dict(torch.load(str(home / "model.pt")))
    print(f"{state} {rate} {counted} {once}", flush=True)
    dist.barrier()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if dist.get_rank() == 0:
            leave(home, step, model)
    dist.barrier()
    dist.destroy_process_group()


def count(path: Path) -> str:
    with path.open("r+") as file:
        found = file.read()
        file.write("+1")
    return found


def leave(home: Path, step: int, model: torch.nn.Module) -> None:
    (home / "state.json").write_text(json.dumps({"seed": 1000 + step}))
    (home / "rate.new").write_text(str(0.5 / step))
    (home / "rate.new").replace(home / "rate.txt")
    torch.save(model.state_dict(), str(home / "model.pt"))
    (home / "once.txt").unlink(missing_ok=True)


main()
