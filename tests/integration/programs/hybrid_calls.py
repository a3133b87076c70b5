"""Every collective on the world of a mesh dp=2,tp=2 in which ranks of the same tp do the same: a line of JSON a call.

Two of the four ranks may run at once among virtual ones: what they get must be what they get in the whole job.
"""

import json
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
part, partner = rank % 2, rank ^ 1
mine = torch.tensor([part + 1.0, 10.0 * (part + 1)])
store = dist.distributed_c10d._get_default_store()


def say(call: str, value: object) -> None:
    value = value.tolist() if isinstance(value, torch.Tensor) else value
    os.write(1, (json.dumps({"rank": rank, "call": call, "value": value}) + "\n").encode())


for name, op in {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "product": dist.ReduceOp.PRODUCT}.items():
    value = mine.clone()
    dist.all_reduce(value, op)
    say(f"all_reduce {name}", value)
count = torch.tensor([part + 3])
dist.all_reduce(count)
say("all_reduce of integers", count)
value = mine.clone()
work = dist.all_reduce(value, async_op=True)
work.wait()
say("all_reduce, asynchronous", value)
value = mine.clone()
dist.reduce(value, 3)
say("reduce", value if rank == 3 else None)
parts = [torch.zeros(2) for _ in range(world)]
dist.all_gather(parts, mine)
say("all_gather", torch.stack(parts))
whole = torch.zeros(2 * world)
dist.all_gather_into_tensor(whole, mine)
say("all_gather_into_tensor", whole)
dist.gather(mine, parts if rank == 2 else None, dst=2)
say("gather", torch.stack(parts) if rank == 2 else None)
share = torch.zeros(2)
dist.reduce_scatter(share, [mine + place % 2 for place in range(world)])
say("reduce_scatter", share)
dist.reduce_scatter_tensor(share, torch.cat([mine * (place % 2 + 1) for place in range(world)]))
say("reduce_scatter_tensor", share)
value = mine.clone()
dist.broadcast(value, 3)
say("broadcast from a real one", value)
value = mine.clone()
dist.broadcast(value, 0)
say("broadcast from a virtual one", value)
dist.scatter(share, [mine * (place + 1) for place in range(world)] if rank == 2 else None, src=2)
say("scatter", share)
said = [None] * world
dist.all_gather_object(said, {"part": part, "more": "x" * (part + 1)})
say("all_gather_object", said)
told = [f"of {rank}"]
dist.broadcast_object_list(told, src=2)
say("broadcast_object_list", told)
sent = dist.isend(mine * 7, partner, tag=5)
value = torch.zeros(2)
dist.irecv(value, partner, tag=5).wait()
sent.wait()
say("messages", value)
store.set(f"by/{rank}", f"rank {rank} was here")
say("store", store.get(f"by/{partner}").decode())
dist.barrier()
pair = dist.new_group([2, 3]) if rank > 1 else dist.new_group([2, 3]) and None
value = mine.clone()
if pair is not None and rank > 1:
    dist.all_reduce(value, group=pair)
say("all_reduce of two real ones", value)
if pair is not None and rank > 1:
    value = dist.all_reduce(mine.clone(), group=pair, async_op=True).get_future().wait()[0]
say("all_reduce of two real ones, by its future", value)
dist.destroy_process_group()
