"""A store of torch.distributed in a replay: who asks it, and what is said of a key that another rank would set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from prismdbg.capsule.spawned import NOT_RECORDED
from prismdbg.rank.emulation.fake_world import IsolatedStore
from prismdbg.rank.replay import lone_stores
from prismdbg.rank.replay.lone_stores import LoneStores

TORCH = Path(torch.__file__).parent
NAMES = ("get", "multi_get", "add", "compare_set", "check", "wait")


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> LoneStores:
    for name in NAMES:
        monkeypatch.setattr(dist.Store, name, getattr(dist.Store, name))
    monkeypatch.setattr(IsolatedStore, "wait", IsolatedStore.wait)
    for module in (dist, c10d):
        monkeypatch.setattr(module, "TCPStore", dist.TCPStore, raising=False)
    monkeypatch.setattr(lone_stores, "GRACE_S", 0.0)
    made = LoneStores()
    made.install()
    return made


def asked_from(path: Path, method: str) -> Callable[..., Any]:
    """A function of a file there, which calls a method of a store."""
    names: dict[str, Any] = {}
    exec(compile(f"def asks(store, *given):\n    return store.{method}(*given)\n", str(path), "exec"), names)
    asks: Callable[..., Any] = names["asks"]
    return asks


def a_store(is_prefixed: bool) -> Any:
    """As a program makes it, or as torch gives it for a group."""
    store = dist.TCPStore("localhost", 1, 2, False)
    return dist.PrefixStore("default_pg", store) if is_prefixed else store


@pytest.mark.parametrize("is_prefixed", [False, True])
@pytest.mark.parametrize(
    ("method", "given"),
    [("get", ("lr",)), ("multi_get", (["lr"],)), ("wait", (["lr"],)), ("wait", (["lr"], timedelta(seconds=60)))],
)
def test_what_another_rank_would_set_is_said_to_be_missing(
    stores: LoneStores, method: str, given: tuple[Any, ...], is_prefixed: bool
) -> None:
    """Nothing is invented: a key that was waited for is as missing as before."""
    store = a_store(is_prefixed)
    with pytest.raises(RuntimeError, match=f"{NOT_RECORDED}: .*lr"):
        asked_from(Path("/job/train.py"), method)(store, *given)
    assert not store.check(["lr"])


def test_what_the_rank_has_set_is_there(stores: LoneStores) -> None:
    store = a_store(False)
    store.set("lr", "0.5")
    asked_from(Path("/job/train.py"), "wait")(store, ["lr"])
    assert store.get("lr") == b"0.5"


def test_torch_itself_waits_for_no_rank(stores: LoneStores) -> None:
    store = a_store(False)
    asked_from(TORCH / "distributed" / "elastic" / "utils" / "store.py", "wait")(store, ["all joined"])
    assert store.check(["all joined"])


@pytest.mark.parametrize("package", ["torchsnapshot", "torchft", "torch_xla"])
def test_packages_beside_torch_are_the_programs(stores: LoneStores, package: str) -> None:
    told: list[str] = []
    stores.listen(told.append)
    path = TORCH.with_name(package) / "store.py"
    with pytest.raises(RuntimeError, match=NOT_RECORDED):
        asked_from(path, "get")(a_store(True), "lr")
    assert [text.partition(":")[0] for text in told] == [f"the program uses a store of torch.distributed at {path}"]


def test_the_first_call_that_somebody_hears_of_is_told(stores: LoneStores) -> None:
    """Before its restore point nobody hears, and nothing is compared."""
    count, told = asked_from(Path("/job/train.py"), "add"), list[str]()
    store = a_store(True)
    assert count(store, "steps", 1) == 1
    stores.listen(told.append)
    assert count(store, "steps", 1) == 2 and count(store, "steps", 1) == 3
    assert len(told) == 1 and "/job/train.py:2" in told[0]
