"""Point to point."""

import torch
import torch.distributed as dist
from torch import Tensor

from tour_phases.place import Place


def send_recv(at: Place) -> Tensor | None:
    if at.rank % 2 == 0:
        dist.send(at.filled(), at.rank + 1)
        return None
    x = torch.zeros(8)
    dist.recv(x, at.rank - 1)
    return x


def recv_any_source(at: Place) -> Tensor | None:
    """Who comes first is chance: the sum is the same in every run, the order of senders is not."""
    if at.rank:
        dist.send(at.filled(), 0)
        return None
    buffers = [torch.zeros(8) for _ in range(at.world - 1)]
    at.arrivals["senders"] = [dist.recv(buffer) for buffer in buffers]
    at.arrivals["buffers"] = buffers
    return torch.stack(buffers).sum(0)


def irecv_any_source(at: Place) -> Tensor | None:
    if at.rank == 1:
        dist.isend(at.filled(), 0, tag=5).wait()
    if at.rank:
        return None
    x = torch.zeros(8)
    dist.irecv(x, tag=5).wait()
    return x


def tags(at: Place) -> list[Tensor]:
    """Received in the other order than they were sent: the tag tells them apart."""
    sends = [dist.isend(at.filled(4, 10 * at.rank + tag), at.next, tag=tag) for tag in (3, 7)]
    values = [torch.zeros(4), torch.zeros(4)]
    receives = [dist.irecv(v, at.previous, tag=t) for v, t in zip(values, (7, 3), strict=True)]
    for work in receives + sends:
        work.wait()
    return values


def batch_isend_irecv(at: Place) -> list[Tensor]:
    values = [torch.zeros(8), torch.zeros(4)]
    batch = [
        dist.P2POp(dist.isend, at.filled(8), at.next),
        dist.P2POp(dist.isend, at.filled(4), at.previous),
        dist.P2POp(dist.irecv, values[0], at.previous),
        dist.P2POp(dist.irecv, values[1], at.next),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return values
