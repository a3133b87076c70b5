"""Two values that only their senders know: what all get from rank 0, and what each gets from the one before it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
word = torch.tensor([11, 12]) if rank == 0 else torch.zeros(2, dtype=torch.int64)
dist.broadcast(word, 0)
passed = torch.full((4,), 7.0)
if rank > 0:
    passed = torch.empty(4)
    dist.recv(passed, rank - 1)
if rank < world - 1:
    dist.send(passed, rank + 1)
print(f"rank {rank} {word.tolist()} {passed.tolist()}", flush=True)
dist.destroy_process_group()
