"""Every collective that gloo knows, one after another, on four ranks."""

import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
ROOT = 1
GROUP = dist.group.WORLD


def row(elements: int = 1000, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(elements, dtype=dtype)


def rows() -> list[torch.Tensor]:
    return [row() for _ in range(world)]


def wait(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        functional.wait_tensor(tensor)


dist.all_reduce(row())
dist.all_reduce(row(), op=dist.ReduceOp.AVG)
dist.all_reduce(row(dtype=torch.bfloat16), op=dist.ReduceOp.AVG)
dist.all_reduce_coalesced([row(), row(500)])
dist.all_reduce_coalesced([row()])
dist.all_gather(rows(), row())
dist.all_gather_into_tensor(row(1000 * world), row())
dist.all_gather_into_tensor(row(24 * world, torch.int64), row(24, torch.int64))
dist.all_gather_coalesced([[row(), row(300)] for _ in range(world)], [row(), row(300)])
wait(functional.all_gather_tensor(row(), 0, GROUP))
wait(*functional.all_gather_into_tensor_coalesced([row(), row(300)], GROUP))
wait(functional.reduce_scatter_tensor(row(1000 * world), "sum", 0, GROUP))
wait(functional.reduce_scatter_tensor(row(1000 * world), "avg", 0, GROUP))
wait(*functional.reduce_scatter_tensor_coalesced([row(1000 * world), row(300 * world)], "sum", [0, 0], GROUP))
wait(functional.all_reduce(row(), "sum", GROUP))
wait(*functional.all_reduce_coalesced([row(), row(300)], "sum", GROUP))
dist.reduce_scatter_tensor(row(), row(1000 * world))
dist.reduce_scatter(row(), rows())
dist.broadcast(row(), ROOT)
dist.reduce(row(), ROOT)
dist.gather(row(), rows() if rank == ROOT else None, ROOT)
dist.scatter(row(), rows() if rank == ROOT else None, ROOT)
dist.all_to_all(rows(), rows())
dist.all_to_all_single(row(1000 * world), row(1000 * world))
given = [10 * (other + 1) for other in range(world)]
dist.all_to_all_single(row(10 * (rank + 1) * world), row(sum(given)), [10 * (rank + 1)] * world, given)
if rank == 0:
    dist.send(row(), 1)
if rank == 1:
    dist.recv(row(), 0)
dist.barrier()
dist.destroy_process_group()
