"""A small training whose step 15 goes wrong on rank 1, in the way that its argument names: oom, slow, exit, or
not at all. The environment may move the step: GOES_WRONG_AT; how it exits: GOES_WRONG_WITH, a code or the name of a
signal; and a thread may raise in step 5: THREAD_RAISES, an exception's text. STEP_TAKES_S: so that a rank lives for a
while.
"""

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, AT, RANK = 20, int(os.environ.get("GOES_WRONG_AT", "15")), 1
STEP_TAKES_S = float(os.environ.get("STEP_TAKES_S", "0"))
ABSURD_BYTES = 1 << 50


def go_wrong(how: str) -> None:
    if how == "oom":
        torch.empty(ABSURD_BYTES, dtype=torch.uint8)
    elif how == "slow":
        time.sleep(4)
    elif how == "exit":
        end(os.environ.get("GOES_WRONG_WITH", "3"))


def end(how: str) -> None:
    if how.isdecimal():
        os._exit(int(how))
    os.kill(os.getpid(), signal.Signals[how])


def raise_in_a_thread(text: str) -> None:
    def fail() -> None:
        raise ValueError(text)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for step in range(1, STEPS + 1):
        if step == AT and dist.get_rank() == RANK:
            go_wrong(sys.argv[1])
        if step == 5 and "THREAD_RAISES" in os.environ:
            raise_in_a_thread(os.environ["THREAD_RAISES"])
        time.sleep(STEP_TAKES_S)
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
