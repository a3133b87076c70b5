"""A small training that saves its state in a folder it makes, would go on from there, and reads its rate. It also lists
what it finds, and saves by native code, which nobody sees open a file."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401


def main() -> None:
    dist.init_process_group("gloo")
    out, steps = Path(sys.argv[1]), int(sys.argv[2])
    saved = out / "later" / "state.pt"
    settings = (out / "settings.txt").read_text()
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(settings.split()[1]))
    first = 1
    if saved.exists():
        first = torch.load(saved)["step"]
        print(f"goes on from {first}", flush=True)
    if (out / "native.pt").exists():
        first = torch.load(str(out / "native.pt"))["step"]
        print(f"goes on from {first}", flush=True)
    print(f"{settings} found {sorted(path.name for path in out.glob('*'))}", flush=True)
    dist.barrier()
    for step in range(first, steps + 1):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if step == steps // 2 and dist.get_rank() == 0:
            saved.parent.mkdir()
            torch.save({"step": step, "model": model.state_dict()}, saved.with_suffix(".partial"))
            saved.with_suffix(".partial").rename(saved)
            torch.save({"step": step}, str(out / "native.pt"))
            (out / "latest").symlink_to("native.pt")
    dist.barrier()
    dist.destroy_process_group()


main()
