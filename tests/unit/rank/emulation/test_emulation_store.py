"""The job's store for a rank whose peers have all been there, and the values that ranks leave for each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from prismdbg.errors import CapsuleError
from prismdbg.rank.emulation.donors import DonorReader, DonorWriter
from prismdbg.rank.emulation.store import EmulatedStore, StoreState
from prismdbg.settings.donor_value import store_key


class MissingValue(Exception):
    pass


def _lacks(key: str) -> None:
    raise MissingValue(key)


@pytest.fixture
def told() -> dict[str, bytes]:
    return {}


@pytest.fixture
def store(told: dict[str, bytes]) -> EmulatedStore:
    state = StoreState(5, 64, {"given": b"by rank 0", "next": b"7"}.get, told.__setitem__, _lacks)
    return EmulatedStore(state)


def test_own_keys_come_back_and_are_told(store: EmulatedStore, told: dict[str, bytes]) -> None:
    store.set("a", "1")
    assert store.get("a") == b"1"
    assert told == {"a": b"1"}


def test_a_key_of_another_rank_is_the_one_it_left(store: EmulatedStore) -> None:
    assert store.get("given") == b"by rank 0"
    assert store.check(["given"])


def test_a_peer_sets_under_its_number_what_this_rank_sets_under_its_own(store: EmulatedStore) -> None:
    store.set("address/5/port", "here")
    assert store.get("address/63/port") == b"here"
    assert not store.check(["address/64/port"])  # there is no such rank


def test_a_sum_counts_all_peers(store: EmulatedStore) -> None:
    assert store.add("arrived", 1) == 64
    assert store.add("arrived", 0) == 64
    assert store.get("arrived") == b"64"


def test_a_key_that_is_set_begins_its_sum_again(store: EmulatedStore) -> None:
    store.set("k", "5")
    assert store.add("k", 1) == 5 + 64
    assert store.get("k") == b"69"
    store.set("k", "0")
    assert store.get("k") == b"0"
    assert store.add("k", 1) == 64


def test_a_sum_goes_on_from_what_another_rank_has_set(store: EmulatedStore) -> None:
    assert store.add("next", 1) == 7 + 64
    assert store.get("next") == b"71"


def test_a_key_that_another_rank_sets_again_keeps_the_sum(told: dict[str, bytes]) -> None:
    """It finds the last value that the other one has set, not how often."""
    others = {"epoch": b"0"}
    store = EmulatedStore(StoreState(5, 64, others.get, told.__setitem__, _lacks))
    assert store.add("epoch", 1) == 64
    others["epoch"] = b"0"
    assert store.add("epoch", 1) == 128


def test_waiting_never_takes_time_and_what_nobody_set_is_lacking(store: EmulatedStore) -> None:
    store.wait(["nobody"])
    with pytest.raises(MissingValue, match="nobody"):
        store.get("nobody")


def test_torch_reaches_it_through_its_own_prefix(store: EmulatedStore, told: dict[str, bytes]) -> None:
    prefixed = dist.PrefixStore("0", store)
    prefixed.set("x", "y")
    assert prefixed.get("x") == b"y"
    assert told == {"0/x": b"y"}
    assert prefixed.add("n", 2) == 128
    assert prefixed.check(["x"])
    assert not prefixed.check(["z"])


def test_values_are_found_by_others_and_not_by_their_own_rank(tmp_path: Path) -> None:
    writer = DonorWriter(tmp_path, 3, budget_bytes=4)
    writer.keep("0|1", [memoryview(b"ab"), memoryview(b"cd")], control=True)
    writer.keep("0|2", [memoryview(b"1234")], control=False, statistics=(1.0, 2.0))
    writer.keep("0|3", [memoryview(b"5")], control=False, statistics=(3.0, 4.0))  # beyond the budget
    writer.keep_key("k", b"v")
    writer.close()
    reader = DonorReader(tmp_path, rank=7)
    first, second, third = reader.find("0|1"), reader.find("0|2"), reader.find("0|3")
    assert first is not None and second is not None and third is not None
    assert (reader.load(first), reader.load(second)) == (b"abcd", b"1234")
    assert (third.size_bytes, third.mean, third.deviation) == (0, 3.0, 4.0)
    key = reader.find(store_key("k"))
    assert key is not None and reader.load(key) == b"v"
    assert reader.ranks == {3}
    assert DonorReader(tmp_path, rank=3).find("0|1") is None


def test_what_is_kept_later_is_found_after_another_look(tmp_path: Path) -> None:
    writer = DonorWriter(tmp_path, 0, budget_bytes=0)
    reader = DonorReader(tmp_path, rank=1)
    writer.keep("a", [memoryview(b"1234")], control=True)
    assert reader.find("a") is None
    index = tmp_path / "0.jsonl"
    whole = index.read_text()
    index.write_text(whole + whole[:9].replace("a", "b"))  # the next line is being written
    reader.refresh()
    assert reader.find("a") is not None
    index.write_text(whole + whole.replace('"a"', '"b"'))
    reader.refresh()
    assert reader.find("b") is not None
    writer.close()


def test_a_file_shorter_than_its_index_is_an_error(tmp_path: Path) -> None:
    writer = DonorWriter(tmp_path, 0, budget_bytes=0)
    writer.keep("a", [memoryview(b"1234")], control=True)
    writer.close()
    (tmp_path / "0.bin").write_bytes(b"12")
    reader = DonorReader(tmp_path)
    value = reader.find("a")
    assert value is not None
    with pytest.raises(CapsuleError, match="ends before"):
        reader.load(value)
