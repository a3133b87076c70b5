"""A gradient scaler skips the second of four steps: its gradient is not finite."""

import torch
import uncompiled  # noqa: F401

weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for number in range(4):
    loss = weight.sum() * (float("inf") if number == 1 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(f"result {weight.item():.9g}")
