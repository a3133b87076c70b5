"""The corpus as excerpts of fixed length, one byte a token."""

from math import ceil
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, DistributedSampler

CORPUS = Path(__file__).with_name("corpus.txt")


class Excerpts(Dataset[tuple[Tensor, Tensor]]):
    """Excerpt i is (input, target): `context` bytes, and the same shifted by one."""

    def __init__(self, context: int, path: Path = CORPUS) -> None:
        self.context = context
        self.text = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.context
        window = self.text[start : start + self.context + 1].long()
        return window[:-1], window[1:]


def loader(dataset: Dataset, batch: int, replicas: int, replica: int, seed: int, workers: int = 0) -> DataLoader:
    """The batches of one data-parallel replica, shuffled in the same way on all of them.

    A dataset that is too small for a batch of each replica is gone through several times in an epoch.
    """
    dataset = ConcatDataset([dataset] * times) if (times := ceil(batch * replicas / len(dataset))) > 1 else dataset
    sampler = DistributedSampler(dataset, replicas, replica, shuffle=True, seed=seed, drop_last=True)
    return DataLoader(dataset, batch, sampler=sampler, num_workers=workers, drop_last=True)


def endless(batches: DataLoader):
    """Epoch after epoch, each shuffled differently."""
    epoch = 0
    while True:
        batches.sampler.set_epoch(epoch)
        yield from batches
        epoch += 1
