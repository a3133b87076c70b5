"""`prismdbg sweep --on ray` on a local Ray of two workers, where Ray is installed."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from chain import prismdbg
from jobs import plain_environment

PROGRAM = Path(__file__).parents[1] / "programs" / "swept.py"
pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (the extra `ray`)"),
]


def test_two_workers_of_ray_run_the_configurations(tmp_path: Path) -> None:
    sizes = ["--world", 4, "--mesh", "dp,tp", "--try", "tp=1,2,3,4", "--try", "layers=2", "--steps", 4, "--json"]
    line = ["sweep", "-o", tmp_path / "s", *sizes]
    job = ["--", sys.executable, PROGRAM, "{tp}", "{layers}"]
    environment = {**plain_environment(), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(sys.path[1:])}
    said = prismdbg(*line, "--on", "ray", "--jobs", 2, *job, env=environment, bound_s=550)
    assert said.code == 1, "one of them fails"
    assert [each["state"] for each in said.json["results"]] == ["done", "done", "impossible", "failed"]
    assert "no layer can be shared by 4 ranks" in said.json["results"][3]["why"]
    assert len(list((tmp_path / "s").glob("trials/*/ran.json"))) == 2
