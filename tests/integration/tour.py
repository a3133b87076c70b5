"""A tour of torch.distributed as a user's script: every kind of call, one phase each, on 4 ranks.

torchrun --nproc-per-node 4 tour.py

It knows nothing of prismdbg. With TOUR_OUT=FOLDER each rank saves `<rank>.pt`: `results`, the same in every run, and
`arrivals`, what chance decided in this one. TOUR_PHASES names the phases wanted, all when unset.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from tour_phases import collectives, data_parallel, functional, groups, objects, point_to_point, sharded
from tour_phases.place import Place


def second_life(at: Place) -> Tensor:
    """A process may end torch.distributed and begin it again."""
    again = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=again, rank=at.rank, world_size=at.world)
    x = at.filled()
    dist.all_reduce(x)
    return x


PHASES: tuple[Callable[[Place], Any], ...] = (
    collectives.all_reduce,
    collectives.all_reduce_operators,
    collectives.all_reduce_types,
    collectives.nonfinite,
    collectives.all_reduce_async,
    collectives.all_reduce_future,
    collectives.futures_collected,
    collectives.wait_with_timeout,
    collectives.polled,
    collectives.made_in_inference_mode,
    collectives.all_gather,
    collectives.all_gather_into_tensor,
    collectives.reduce_scatter,
    collectives.reduce_scatter_tensor,
    collectives.broadcast,
    collectives.reduce,
    collectives.gather,
    collectives.scatter,
    collectives.all_to_all_single,
    collectives.all_to_all_splits,
    collectives.all_to_all,
    collectives.barriers,
    collectives.coalescing_manager,
    point_to_point.send_recv,
    point_to_point.recv_any_source,
    point_to_point.irecv_any_source,
    point_to_point.tags,
    point_to_point.batch_isend_irecv,
    objects.all_gather_object,
    objects.broadcast_object_list,
    objects.gather_object,
    objects.scatter_object_list,
    objects.send_object_list,
    objects.pids,
    functional.functional,
    functional.functional_coalesced,
    functional.functional_autograd,
    functional.autograd_functions,
    groups.new_group,
    groups.new_subgroups,
    groups.backend_by_device,
    groups.group_roots,
    groups.local_group,
    groups.split_group,
    groups.destroyed_group,
    groups.threads,
    data_parallel.ddp,
    data_parallel.ddp_many_buckets,
    data_parallel.ddp_hooks,
    data_parallel.ddp_power_sgd,
    data_parallel.ddp_join,
    data_parallel.sparse_gradients,
    data_parallel.zero,
    sharded.fsdp2,
    sharded.fsdp2_hybrid,
    sharded.fsdp1,
    sharded.dtensor,
    sharded.tensor_parallel,
    sharded.pipeline,
    sharded.checkpoint,
    second_life,
)


def main() -> None:
    dist.init_process_group("gloo")
    at = Place()
    wanted = os.environ.get("TOUR_PHASES", "").split()
    results = {}
    for phase in PHASES:
        if not wanted or phase.__name__ in wanted:
            results[phase.__name__] = phase(at)
    folder = os.environ.get("TOUR_OUT")
    if folder:
        torch.save({"results": results, "arrivals": at.arrivals}, Path(folder) / f"{at.rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
