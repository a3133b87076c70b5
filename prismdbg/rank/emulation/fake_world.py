"""Lets a program initialise torch.distributed with nobody else there: no rendezvous, no sockets.

The user's backend name stays; behind it is torch's FakeProcessGroup, which the kernels above never reach. Groups of
ranks that run at once have a real backend.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d


class IsolatedStore(dist.HashStore):  # type: ignore[misc]
    """A store whose peers have all arrived: waiting for a key of theirs returns at once, empty."""

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            if not self.check([key]):
                self.set(key, "")


class Real(Protocol):
    """Who decides which groups have a real backend."""

    def make(self, ranks: Sequence[int], timeout: timedelta, build: Callable[[Any], Any]) -> Any:
        """Calls `build` once, with the store of a real group, or with None for a fake one, and returns what it does."""
        ...


_keep: list[Any] = []
_timeouts: dict[str, timedelta] = {}  # by group; a fake backend has none


def timeout_of(group: Any) -> timedelta:
    """How long the real group's calls wait for a peer, unless they say it themselves."""
    if (known := _timeouts.get(group.group_name)) is not None:
        return known
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        if options is not None:  # a restored rank's own backend
            return options._timeout  # type: ignore[no-any-return]
    return c10d._get_default_timeout(dist.get_backend(group))  # type: ignore[no-any-return]


def install(make_store: Callable[[], Any] = IsolatedStore, real: Real | None = None) -> None:
    """From here on `init_process_group` and `new_group` need no peer. `make_store` gives each group its store."""
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  registers the backend "fake"

    def store() -> Any:
        made = make_store()
        _keep.append(made)  # a store's Python half must outlive what C++ makes of it
        return made

    c10d.rendezvous = _rendezvous(store)
    c10d._store_based_barrier = lambda *_, **__: None
    dist.ProcessGroup._get_backend_name = _shown(dist.ProcessGroup._get_backend_name)
    c10d._new_process_group_helper = _without_sockets(c10d._new_process_group_helper, store, real)
    c10d.split_group = dist.split_group = device_mesh.split_group = _split(c10d.split_group)


def _rendezvous(store: Callable[[], Any]) -> Callable[..., Iterator[tuple[Any, int, int]]]:
    def rendezvous(url: str, rank: int = -1, world_size: int = -1, **_: Any) -> Iterator[tuple[Any, int, int]]:
        yield (
            store(),
            rank if rank >= 0 else int(os.environ["RANK"]),
            world_size if world_size > 0 else int(os.environ["WORLD_SIZE"]),
        )

    return rendezvous


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Where TORCH_DISTRIBUTED_DEBUG is DETAIL, torch wraps each group in one that compares the calls of its ranks over
    sockets of gloo."""
    level = dist.get_debug_level()
    if level == dist.DebugLevel.DETAIL:
        dist.set_debug_level(dist.DebugLevel.INFO)
    try:
        yield
    finally:
        dist.set_debug_level(level)


def _without_sockets(
    original: Callable[..., Any], store_of: Callable[[], Any], real: Real | None
) -> Callable[..., Any]:
    def helper(
        group_size: int,
        group_rank: int,
        ranks: list[int],
        backend: Any,
        store: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        lone = store_of()

        def build(meeting: Any) -> Any:
            kind = dist.Backend("fake" if meeting is None else "gloo")
            given = lone if meeting is None else meeting
            own = {**kwargs, "backend_options": _options(kwargs.get("timeout")) if meeting is None else None}
            with _unwrapped():
                return original(group_size, group_rank, ranks, kind, given, *args, **own)[0]

        is_member = group_rank is not None and group_rank >= 0
        if real is None or not is_member:
            group = build(None)
        else:
            group = real.make(ranks or range(group_size), kwargs["timeout"], build)
        if group is not None and group in c10d._world.pg_map:
            if (timeout := kwargs.get("timeout")) is not None:
                _timeouts[group.group_name] = timeout
            c10d._world.pg_map[group] = (dist.Backend(str(backend)), lone)
            c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(backend))
        return group, lone

    return helper


def _options(timeout: timedelta | None) -> Any:
    """Of a fake backend; without them torch 2.15 has none at all."""
    options: Any = FakeProcessGroup.Options()  # type: ignore[call-arg]
    if timeout is not None:
        options._timeout = timeout
    return options


def _shown(original: Callable[[Any], str]) -> Callable[[Any], str]:
    """The type of the backend that the program chose: torch chooses collectives by it, and has "custom" here."""

    def name(group: Any) -> str:
        config = c10d._world.pg_backend_config.get(group)
        return _default_type(config) if config else original(group)

    return name


def _default_type(config: str) -> str:
    """Of a group with these backends, as `cpu:gloo,cuda:nccl`: a device's comes before the host's."""
    by_device = dict(part.split(":", 1) for part in config.split(","))
    backend = by_device[min(by_device, key=lambda device: device == "cpu")]
    kind: Any = dist.Backend.backend_type_map.get(backend, dist.ProcessGroup.BackendType.CUSTOM)
    return str(kind.name).lower()


def _split(original: Callable[..., Any]) -> Callable[..., Any]:
    """Of a world that is bound to a device, as a device mesh splits it: torch's fake backend cannot be split."""

    def split_group(
        parent_pg: Any = None,
        split_ranks: list[list[int]] | None = None,
        timeout: timedelta | None = None,
        pg_options: Any = None,
        group_desc: str | None = None,
        **more: Any,
    ) -> Any:
        world = c10d._get_default_group()
        if not split_ranks or world.bound_device_id is None or not torch.accelerator.is_available():
            return original(parent_pg, split_ranks, timeout, pg_options, group_desc, **more)
        parent = parent_pg or world
        mine = next((sorted(ranks) for ranks in split_ranks if parent.rank() in ranks), None)
        if mine is None:
            return None
        kind = dist.Backend(str(more.get("backend") or c10d._world.pg_map[parent][0]))
        global_ranks = [dist.get_global_rank(parent, rank) for rank in mine]
        group, _ = c10d._new_process_group_helper(
            len(mine),
            mine.index(parent.rank()),
            global_ranks,
            kind,
            None,
            c10d._process_group_name(mine, use_hashed_name=True),
            timeout=timeout or c10d._get_default_timeout(kind),
            device_id=world.bound_device_id,
            group_desc=group_desc,
        )
        c10d._world.pg_group_ranks[group] = {rank: place for place, rank in enumerate(global_ranks)}
        return group

    return split_group
