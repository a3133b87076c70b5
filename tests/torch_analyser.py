"""What torch's own analyser of Flight Recorder dumps (`torchfrtrace`) says of a folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BOUND_S = 240.0


def analysed(dumps: Path, environment: Mapping[str, str], *options: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(dumps), *options]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr
