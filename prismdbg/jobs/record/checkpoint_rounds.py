"""`--checkpoint-every`: the ranks of a supervisor take their turns, and what that costs the job is said once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from prismdbg.errors import CheckpointTooSlow, PrismError
from prismdbg.jobs.capture.capture import GivenUp, Patience
from prismdbg.jobs.capture.costs import checkpoint_slowdown
from prismdbg.jobs.record import checkpoints
from prismdbg.jobs.record.ledger import Ledger
from prismdbg.jobs.storage.ranks_alive import RankProcess
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.plurals import counted
from prismdbg.protocol.client import NotWaitedFor

COSTS_KEPT = 100  # of checkpoints, in supervisor.json
MOST_DOUBLINGS = 10
_NUMBERS = re.compile(r"[0-9]+")


class CheckpointRounds:
    """`every`: steps, 0 for none. Ranks go by the names of their folders. holding: entered while a rank is held."""

    def __init__(
        self,
        run: RunFolder,
        every: int,
        ledger: Ledger,
        say: Callable[[str], None],
        holding: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._run = run
        self._every = every
        self._ledger = ledger
        self._say = say
        self._holding = holding
        self._steps: dict[str, int] = {}
        self._taken_at: dict[str, int] = {}
        self._failed: dict[str, int] = {}  # how often, since there was one
        self._not_before: dict[str, int] = {}  # steps
        self._never: set[str] = set()
        self._costs: list[dict[str, Any]] = []

    def came_to(self, name: str, step: int) -> None:
        self._steps[name] = step

    def take(
        self, processes: Mapping[str, RankProcess], patience: Patience, step_ns: int, given_up: GivenUp | None = None
    ) -> None:
        """Of every rank that has come past a multiple of `every` since its last one, one at a look, the one with the
        oldest: what happens meanwhile is seen first, and where images take longer than steps each rank still has its
        turn. patience: with a rank that is slow to park. step_ns: of a step of the job. given_up: there is something
        else to do than to wait for a rank; its turn comes again."""
        if not self._every:
            return
        for name in sorted(self._steps, key=lambda name: self._taken_at.get(name, 0)):
            if self._is_due(name) and name in processes and processes[name].is_alive():  # else rank.json is damaged
                self._take(name, processes, patience, step_ns, given_up)
                return

    def _is_due(self, name: str) -> bool:
        step = self._steps[name]
        if name in self._never or step < self._not_before.get(name, 0):
            return False
        return step // self._every > self._taken_at.get(name, 0) // self._every

    def _take(
        self,
        name: str,
        processes: Mapping[str, RankProcess],
        patience: Patience,
        step_ns: int,
        given_up: GivenUp | None,
    ) -> None:
        before, step = self._taken_at.get(name, 0), self._steps[name]
        self._taken_at[name] = step
        try:
            with self._holding():
                taken = checkpoints.take(self._run, self._run.ranks / name, lambda _: None, patience, given_up)
        except NotWaitedFor:
            self._taken_at[name] = before
            return
        except PrismError as error:
            if processes[name].is_alive():  # else it came to its end meanwhile
                self._has_failed(name, step, error)
            return
        self._failed.pop(name, None)
        costs = self._costs
        costs.append(
            {"rank": name, "moment": str(taken.moment), "paused_ns": taken.paused_ns, "bytes": taken.images_bytes}
        )
        del costs[:-COSTS_KEPT]
        self._ledger.note(checkpoints=costs)
        if len(costs) == len(processes):
            self._say_cost([cost["paused_ns"] for cost in costs], [cost["bytes"] for cost in costs], step_ns)

    def _has_failed(self, name: str, step: int, error: PrismError) -> None:
        """Said once for each rank and reason, which names other sizes and process numbers each time. The rank is asked
        more and more seldom, for each try may hold the job; and no more where it can never be done."""
        never = ""
        if isinstance(error, CheckpointTooSlow):  # the next one might end the rank
            self._never.add(name)
            never = "; no further one is taken"
        elif (lasting := checkpoints.why_never(self._run.ranks / name)) is not None:
            self._never.add(name)
            error = lasting
        failed = self._failed[name] = self._failed.get(name, 0) + 1
        self._not_before[name] = (step // self._every + 2 ** min(failed, MOST_DOUBLINGS)) * self._every
        text = f"no checkpoint of rank {name} at step {step}: {error}{never}"
        self._ledger.problem(text, error.hint, about=f"{name} {_NUMBERS.sub('', text)}")

    def _say_cost(self, pauses_ns: list[int], sizes: list[int], step_ns: int) -> None:
        """After the first round: what the rest of the job will pay."""
        slowdown = checkpoint_slowdown(pauses_ns, self._every, step_ns)
        self._ledger.note(checkpoint_slowdown_predicted=slowdown)
        kept = checkpoints.KEPT * sum(sizes) >> 20
        self._say(
            f"checkpoints every {counted(self._every, 'step')}: each round pauses the job for "
            f"{sum(pauses_ns) / 1e9:.2f} s, which prolongs it by about {slowdown:.1%}; {kept} MiB are kept"
        )
