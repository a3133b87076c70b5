"""Takes the GPU of its LOCAL_RANK, as it would on a machine with one: the functions of torch.cuda are replaced."""

import os

import torch


def set_device(number: int) -> None:
    if number:
        raise RuntimeError("CUDA error: invalid device ordinal")


torch.cuda.device_count, torch.cuda.set_device = lambda: 1, set_device
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
raise ValueError("it has a GPU")
