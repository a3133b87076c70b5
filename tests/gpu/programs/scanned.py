"""Fingerprints that the device works out, against those of the host: all types, sizes around the kernel's blocks,
places that are not aligned, and values that are not finite. Prints how many were compared, or ends with the first that
differs."""

import argparse
import json
import sys
from pathlib import Path

import torch

from prismdbg.jobs.injection import cache_dir
from prismdbg.rank.native import build

parser = argparse.ArgumentParser()
parser.add_argument("--cache", type=Path, default=cache_dir())
native = build.load(parser.parse_args().cache)
if native is None:
    sys.exit("the native recorder is not built: `prismdbg setup`")

BLOCK = 4096 * 8
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2, torch.float8_e4m3fn)
TYPES = (*FLOATS, torch.uint8, torch.int64, torch.bool, torch.complex64, torch.int16)
SIZES = (0, 1, 7, 8, 9, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 40, (1 << 20) + 2, 64 << 20)


def compare(tensors: list[torch.Tensor], what: str) -> None:
    there, here = native.scan(tensors), native.fingerprint([t.cpu() for t in tensors])
    if there != here:
        sys.exit(f"{what}: the device says {there}, the host {here}")


compared = 0
random = torch.Generator("cuda").manual_seed(5)
for dtype in TYPES:
    for size in SIZES:
        count = size // dtype.itemsize
        # bytes of any kind would be NaN here and there: integers below 60 are finite in each of the types
        data = torch.randint(0, 60, (count + 3,), generator=random, device="cuda").to(dtype)
        for skipped in (0, 1, 3):  # elements at the beginning: then a word is not where its bytes are aligned
            compare([data[skipped : skipped + count]], f"{count} x {dtype} from element {skipped}")
            compared += 1
for dtype in FLOATS[:-1]:
    for wrong in (float("nan"), float("inf"), float("-inf")):
        for place in (0, 4095, 100_000):
            data = torch.zeros(100_001, device="cuda").to(dtype)
            data[place] = wrong
            compare([data[:7].clone(), data], f"{wrong} at {place} of {dtype}")
            compared += 1
many = [torch.full((n,), n, device="cuda", dtype=torch.float32) for n in range(1, 40)]
for _ in range(200):  # places are used again
    compare(many, "39 tensors")
    compared += 1
print(json.dumps({"compared": compared}))
