"""How an emulation ends that did not come to agree with its simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.cli.options.pace_options import end_unconverged
from prismdbg.jobs.storage.pass_errors import Passed


def test_it_names_the_file_of_its_own_folder_and_what_to_try_in_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        end_unconverged(Passed(clock="wall", until=0.01, has_converged=False, passes=4, errors=()), Path("J8"))
    first, second = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1
    assert first.startswith("prismdbg: not converged after 4 passes: ") and "J8/passes.json" in first
    assert second.startswith("  try: use more --steps")
