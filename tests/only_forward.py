"""A rank without a way back, for `Debugger` over an agent that a test answers."""

from __future__ import annotations

from prismdbg.errors import FacilityError
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentClient
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.session.checkpoint import Checkpoint


class OnlyForward:
    """What `Travel` is where nothing can start or restore the rank again."""

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        self.checkpoints: tuple[Checkpoint, ...] = (Checkpoint(number=0, moment=Moment(0), size_bytes=0, cost_s=0.0),)

    @property
    def own(self) -> RankFolder:
        raise FacilityError("nobody keeps a folder of this rank")

    def save(self, moment: Moment, number: int | None = None, side: str = "") -> Checkpoint:
        raise FacilityError("this replay cannot go back: it only runs forward", hint="use prismdbg debug CAPSULE")

    def stands_first_at(self, moment: Moment) -> None:
        return None

    def keep_origin(self) -> None:
        return None

    def return_to(self, number: int) -> None:
        raise FacilityError("this replay cannot go back: it only runs forward", hint="use prismdbg debug CAPSULE")

    def forget(self, number: int) -> None:
        return None
