"""What an emulated rank keeps of what it sends: for those whose run is wanted, within a budget, and control data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prismdbg.model.collective import Identity
from prismdbg.model.ops import OPS, OpSpec
from prismdbg.rank.emulation.donors import DonorReader
from prismdbg.rank.emulation.outbox import Inbox, Outbox
from prismdbg.settings.donor_value import received_key, similar_key
from prismdbg.settings.emulation import Emulation, Policy, Rule

MEMBERS = [3, 5, 7, 9]
FLOATS = 4 * 100


@dataclass
class Played:
    """As much of a call as the outbox looks at: rank 3 sends to the others of its group."""

    name: str
    inputs: list[torch.Tensor]
    root: int = 0
    rank: int = 0
    tag: int = 0
    group_name: str = "4"
    spec: OpSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = OPS[self.name]


MakeOutbox = Callable[..., Outbox]


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[MakeOutbox]:
    made: list[Outbox] = []

    def make(*, asked: tuple[int, ...], budget: int = 1 << 20, rules: tuple[Rule, ...] = ()) -> Outbox:
        kept: Any = SimpleNamespace(kept=lambda key: None)
        settings = Emulation(
            rank=3, world=16, axes=(("dp", 16),), asked=asked, rules=rules, donors=str(tmp_path), donor_bytes=budget
        )
        made.append(Outbox(settings, kept))
        return made[-1]

    yield make
    for box in made:
        box._writer.close()


def send(box: Outbox, name: str, tensor: torch.Tensor, seq: int = 0, root: int = 1) -> None:
    box.keep(Played(name, [tensor], root), Identity("4", seq), "dp", MEMBERS)  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "kept"), [((3,), 0), ((3, 5), FLOATS), ((3, 7), 0)])
def test_a_send_is_kept_for_the_one_who_receives_it(asked: tuple[int, ...], kept: int, outbox: MakeOutbox) -> None:
    box = outbox(asked=asked)
    send(box, "send", torch.ones(100), root=1)
    assert box.tally() == ({"kept_bytes": kept} if kept else {"not_needed_bytes": FLOATS})


@pytest.mark.parametrize(("asked", "kept"), [((3,), 0), ((3, 9), FLOATS), ((3, 4), 0)])
def test_a_broadcast_is_kept_where_any_of_its_group_is_wanted(
    asked: tuple[int, ...], kept: int, outbox: MakeOutbox
) -> None:
    box = outbox(asked=asked)
    send(box, "broadcast_", torch.ones(100), root=0)
    assert box.tally().get("kept_bytes", 0) == kept


def test_of_what_is_not_kept_there_are_statistics_and_no_bytes(outbox: MakeOutbox, tmp_path: Path) -> None:
    box = outbox(asked=(3,))
    send(box, "send", torch.arange(100.0))
    (value,) = DonorReader(tmp_path)._values.values()
    assert (value.size_bytes, value.mean) == (0, 49.5)
    assert (tmp_path / "3.bin").stat().st_size == 0


def test_control_data_is_kept_whoever_receives_it(outbox: MakeOutbox) -> None:
    box = outbox(asked=(3,), budget=0)
    send(box, "send", torch.arange(10))
    assert box.tally() == {"control_bytes": 80}


def test_a_rule_that_asks_for_the_senders_values_keeps_them_all(outbox: MakeOutbox) -> None:
    box = outbox(asked=(3,), rules=(Rule(policy=Policy.DONOR, axis="dp", op="recv"),))
    send(box, "send", torch.ones(100))
    assert box.tally() == {"kept_bytes": FLOATS}


def test_beyond_the_budget_only_statistics_are_kept(outbox: MakeOutbox, tmp_path: Path) -> None:
    box = outbox(asked=(3, 5), budget=FLOATS + 100)
    for seq in range(3):
        send(box, "send", torch.full((100,), float(seq)), seq)
    assert box.tally() == {"kept_bytes": FLOATS, "beyond_budget_bytes": 2 * FLOATS}
    assert [v.mean for v in DonorReader(tmp_path)._values.values()] == [0.0, 1.0, 2.0]
    assert (tmp_path / "3.bin").stat().st_size == FLOATS


def test_what_the_very_rank_received_in_another_run_goes_first(tmp_path: Path) -> None:
    similar = similar_key("dp", OPS["alltoall_base_"].label, 2)
    lines = [
        f'{{"key": "{key}", "rank": {rank}, "file": "x", "offset": 0, "size_bytes": 8}}\n'
        for key, rank in ((similar, 0), (received_key(similar, 3), 3))
    ]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "0.jsonl").write_text("".join(lines))
    call: Any = Played("alltoall_base_", [])
    found = {}
    for rank in (3, 4):
        own, other = str(tmp_path / "own"), str(tmp_path / "other")
        inbox = Inbox(Emulation(rank=rank, world=16, axes=(("dp", 16),), donors=own, external=other))
        value = inbox.find_similar(call, Identity("4", 2), "dp")
        found[rank] = value.rank if value is not None else None
    assert found == {3: 3, 4: 0}
