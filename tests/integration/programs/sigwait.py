"""A process of one rank that waits for a signal which it has blocked, as a handler of preemptions does."""

import os
import signal

import torch
import uncompiled  # noqa: F401

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step() -> None:
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


step()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
print(f"result {int(signal.sigwait([signal.SIGUSR1]))}", flush=True)
step()
