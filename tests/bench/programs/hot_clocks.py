"""One rank that reads a clock again and again in one line, and says how many microseconds a read took: of the first
ones, and of those that come after so many that a recording leaves them out."""

import argparse
import json
import time

import torch
import torch.distributed as dist

FIRST, LATER = 400, 20_000


def read(count: int) -> float:
    began = time.perf_counter_ns()
    for _ in range(count):
        time.monotonic()
    return (time.perf_counter_ns() - began) / count / 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--said", default="said", help="in front of the line that is printed")
    said = parser.parse_args().said
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    first, later = read(FIRST), read(LATER)
    print(said, json.dumps({"first": first, "later": later}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
