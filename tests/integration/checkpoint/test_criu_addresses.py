"""A rank is bound to addresses of the machine it was taken from: a restore brings them along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
pytestmark = pytest.mark.criu


@pytest.mark.parametrize("address", ["10.77.0.5", "fd77::5"])
def test_the_addresses_come_along(address: str, child_environment: dict[str, str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("restoring a checkpoint needs root")
    ran = subprocess.run(
        ["unshare", "--net", sys.executable, str(TESTS / "in_own_network.py"), address],
        env={**child_environment, "PYTHONPATH": f"{TESTS}{os.pathsep}{child_environment['PYTHONPATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["addresses"] == [address]
    assert said["count"] > 0
    if ":" not in address:  # criu binds IPv6 sockets to addresses that are not there, too
        assert "bind" in said["refusal"] and "address" in said["refusal"]
