"""A job of one rank, without a launcher, that trains until it is ended. `one_rank.py FOLDER`"""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    time.sleep(0.01)  # whoever reads the log from its beginning comes to its end
