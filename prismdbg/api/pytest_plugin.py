"""A captured rank as a test: pytest loads this by itself where prismdbg is installed.

@pytest.mark.capsule("incident.tar.zst")
def test_the_loss_stays_finite(capsule):
    capsule.assert_identical()
    with capsule.replay() as rank:
        rank.run_to("11.1")
        assert rank.value("mean(loss)") < 10
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from prismdbg.api.replay import Replay
    from prismdbg.jobs.replay.compare import Verdict
    from prismdbg.model.moment import Moment

MARK = "capsule"
LONGEST_S = 3600.0
_HINT = 'write @pytest.mark.capsule("incident.tar.zst"); a relative path begins at the folder of the test file'


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleUnderTest:
    """runtime: docker, local or plain; empty for the first that this machine has. timeout_s: of a whole comparison, and
    in `replay` of one run without a collective. Errors are `prismdbg.errors.PrismError`s: a capsule that is bad, or a
    machine that cannot replay, is an error of the test, never a skip."""

    path: Path
    runtime: str = ""
    timeout_s: float = LONGEST_S

    def compare(self, *, until: str | Moment | None = None, strict: bool = False) -> Verdict:
        """Replays the rank once, to its end moment or to `until`, and compares every collective with the recording.
        strict: pickled objects that differ, such as a PID or a time, count, too."""
        from prismdbg.api.moments import moment_of
        from prismdbg.jobs.replay.compare import run_to_end
        from prismdbg.jobs.replay.replay import ReplayRequest, open_replay
        from prismdbg.jobs.replay.span import require_inside
        from prismdbg.jobs.storage.pack import opened
        from prismdbg.model.deadline import Deadline

        end = moment_of(until)
        with opened(self.path) as whole:
            require_inside(whole.manifest, str(self.path), "until", end)
            deadline = Deadline.after(self.timeout_s)
            request = ReplayRequest(capsule=whole, runtime=self.runtime, strict=strict, deadline=deadline)
            with open_replay(request, _silent) as live:
                return run_to_end(live, until=end, strict=strict, deadline=deadline)

    def assert_identical(self, *, until: str | Moment | None = None, strict: bool = False) -> Verdict:
        """`AssertionError` where the replay is anything else, also where too little could be compared: it names the
        first difference, its source line and the likely causes."""
        from prismdbg.jobs.replay.verdict import Outcome
        from prismdbg.render.stop_text import source_lines
        from prismdbg.session.divergence_text import render_divergence

        verdict = self.compare(until=until, strict=strict)
        if verdict.outcome is not Outcome.IDENTICAL:
            shown = list(source_lines(verdict.source)) if verdict.source else ()
            text = verdict.summary if verdict.story is None else render_divergence(verdict.story, shown)
            raise AssertionError("\n".join([f"{self.path}: {text}", *verdict.notes]))
        return verdict

    def replay(self) -> AbstractContextManager[Replay]:
        """The rank in a debugger, as `prismdbg.replay` gives it."""
        from prismdbg.api.replay import replay

        return replay(self.path, runtime=self.runtime, timeout_s=self.timeout_s)


def _silent(_text: str) -> None:
    pass


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f'{MARK}(path, runtime="", timeout_s=3600.0): the prismdbg capsule that the fixture `capsule` replays',
    )


@pytest.fixture
def capsule(request: pytest.FixtureRequest) -> CapsuleUnderTest:
    """The capsule of `@pytest.mark.capsule(path)`: a folder or a packed file, relative to the test file's folder."""
    mark = request.node.get_closest_marker(MARK)
    if mark is None:
        raise pytest.UsageError(f"the fixture `capsule` needs a mark: {_HINT}")
    try:
        return _of_mark(request.path.parent, *mark.args, **mark.kwargs)
    except TypeError as error:
        raise pytest.UsageError(f"the mark `capsule`: {error}: {_HINT}") from error


def _of_mark(folder: Path, path: str | Path, /, *, runtime: str = "", timeout_s: float = LONGEST_S) -> CapsuleUnderTest:
    return CapsuleUnderTest(path=folder / path, runtime=runtime, timeout_s=timeout_s)
