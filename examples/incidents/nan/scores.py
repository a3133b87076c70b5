"""The quality of every excerpt, one float32 each, as a preprocessing job would leave it on disk.

`python scores.py` writes scores.f32 with one bit flipped, in a record that one rank meets at a certain step.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[2] / "gpt"))
from data import Excerpts, loader

SCORES = Path(__file__).with_name("scores.f32")
EXPONENT_TOP_BIT = 1 << 30  # turns a float from 1 to 2 into NaN


def read(path: Path) -> Tensor:
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)


def judge(dataset: Excerpts) -> Tensor:
    """From 1 (numbers and signs only) to almost 2 (letters only)."""
    excerpts = dataset.text[: len(dataset) * dataset.context].view(len(dataset), dataset.context)
    lower = excerpts | 32
    letters = (lower >= ord("a")) & (lower <= ord("z"))
    return 1 + 0.99 * letters.float().mean(1)


def flip_bit(scores: Tensor, record: int) -> None:
    scores.view(torch.int32)[record] ^= EXPONENT_TOP_BIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=SCORES)
    parser.add_argument("--step", type=int, default=12, help="step in which the corrupt record is read")
    parser.add_argument("--rank", type=int, default=2, help="rank that reads it")
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8, help="the same as for train.py")
    parser.add_argument("--seed", type=int, default=0, help="the same as for train.py")
    args = parser.parse_args()

    dataset = Excerpts(context=64)
    scores = judge(dataset)
    order = list(loader(dataset, args.batch, args.world, args.rank, args.seed).sampler)
    record = order[(args.step - 1) * args.batch]
    flip_bit(scores, record)
    args.out.write_bytes(scores.numpy().tobytes())
    print(f"{args.out}: record {record} of {len(scores)} is now {scores[record].item()}")


if __name__ == "__main__":
    main()
