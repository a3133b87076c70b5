"""A process that reads batches from a DataLoader with workers without end, and checks each. `loader_rank.py SOCKET`;
answers there with how many batches it has had."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from answering import answer_on
from torch.utils.data import DataLoader, Dataset

BATCH = 8


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1000,), float(index))


class Rank:
    def __init__(self) -> None:
        self.count = 0

    def run(self) -> None:
        for batch in DataLoader(Numbers(), batch_size=BATCH, num_workers=2):
            expected = self.count * BATCH
            if batch[:, 0].tolist() != [float(expected + number) for number in range(BATCH)]:
                sys.exit(f"batch {self.count} is another one: {batch[:, 0]}")
            self.count += 1
            time.sleep(0.01)


if __name__ == "__main__":
    rank = Rank()
    answer_on(Path(sys.argv[1]), lambda: vars(rank))
    rank.run()
