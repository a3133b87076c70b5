"""Reads each item of its data set from a file of its own, in worker processes of a loader: forked ones, new ones, and
such as a server of `multiprocessing` forks. Another part lies in a database.

torchrun --nproc-per-node 2 reads_in_workers.py
"""

import importlib.util
import os
import sqlite3
from pathlib import Path

assert importlib.util.find_spec("torch"), "as transformers asks before it imports torch"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

HERE = Path(__file__).parent


class Items(Dataset[torch.Tensor]):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 4

    def __getitem__(self, item: int) -> torch.Tensor:
        text = (HERE / self.kind / f"{item}.txt").read_text()
        native = torch.from_file(str(HERE / self.kind / f"{item}.bin"), size=1)
        return float(text) + native


def main() -> None:
    assert "LIBRARY_SESSION_ID" not in os.environ, "as in libraries that set one when they are imported"
    os.environ["LIBRARY_SESSION_ID"] = "5f0c2b9de81744aa9c3f6b7a1d2e4f80"
    dist.init_process_group("gloo")
    rows = sqlite3.connect(HERE / "numbers.db").execute("select x from numbers").fetchall()
    for kind in ("fork", "spawn", "forkserver"):
        loader = DataLoader(Items(kind), batch_size=2, num_workers=1, multiprocessing_context=kind)
        for batch in loader:
            total = batch.sum() + rows[0][0]
            dist.all_reduce(total)
            # One write: both ranks print at this moment, into one pipe.
            os.write(1, f"rank {dist.get_rank()}: {total.item()}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
