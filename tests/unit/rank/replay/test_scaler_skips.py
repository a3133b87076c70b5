"""Which steps a replayed program's gradient scalers skip, as they are told."""

from __future__ import annotations

from prismdbg.capsule.log.format import StepSource
from prismdbg.model.moment import Moment
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.replay.scaler_skips import ScalerSkips


class Program:
    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []
        self.counters = Counters()
        self.skips = ScalerSkips(
            self.counters, lambda at, begun, in_a_row: self.told.append((str(at), begun, in_a_row))
        )

    def step(self, source: StepSource = StepSource.OPTIMIZER) -> None:
        self.skips.step_ends(self.counters.step + 1, source)
        self.counters.begin_step(self.counters.step + 1)


def test_steps_of_the_first_optimizer_are_counted_until_one_is_taken() -> None:
    program, skipped = Program(), StepSource.SKIPPED_BY_SCALER
    program.counters.collective = 2
    for source in (skipped, skipped, StepSource.OPTIMIZER, skipped):
        program.step(source)
    assert program.told == [("0.2", 1, 1), ("1.0", 2, 2), ("3.0", 4, 1)]


def test_another_optimizer_is_counted_over_the_steps_in_which_it_is_due() -> None:
    program = Program()
    for _ in range(2):
        program.step()
        program.step()
        assert not program.skips.has_collectives()
        program.skips.skipped(program.counters.step - 1, 1)  # of the step that the first one has just ended
    program.skips.taken(1)
    program.counters.collective = 1
    assert program.skips.has_collectives()
    program.skips.skipped(program.counters.step, 1)
    assert program.told == [("1.0", 2, 1), ("3.0", 4, 2), ("4.0", 5, 1)]


def test_the_moment_is_that_of_the_gradients() -> None:
    program = Program()
    program.counters.collective = 3
    program.skips.skipped(0, 1)
    assert program.told == [(str(Moment(0)), 1, 1)]
