"""Names the tests that failed and pass when they are run again (`make test` runs failed ones once more)."""

from __future__ import annotations

import pytest


class Unstable:
    """For a run of tests that failed in the run before. What it says is the last that the run says."""

    def __init__(self) -> None:
        self._passed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.append(report.nodeid)

    def pytest_unconfigure(self) -> None:
        print("\n".join(self.lines()), flush=True)

    def lines(self) -> list[str]:
        if not self._passed:
            return ["=== no unstable test: none that failed passes when it is run again ==="]
        title = f"=== UNSTABLE ({len(self._passed)}): failed, and passed when run again; mend these ==="
        return [title, *(f"UNSTABLE {name}" for name in sorted(self._passed))]
