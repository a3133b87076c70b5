"""Starts the two ranks and ends with the higher of their codes: `launch.py SIGNS PHASES`. Leaves it in SIGNS/code."""

import os
import subprocess
import sys
from pathlib import Path

RANK = Path(__file__).with_name("rank.py")
ranks = [
    subprocess.Popen([sys.executable, str(RANK), *sys.argv[1:]], env={**os.environ, "RANK": str(n), "WORLD_SIZE": "2"})
    for n in range(2)
]
code = max(rank.wait() % 256 for rank in ranks)
Path(sys.argv[1], "code").write_text(str(code))
sys.exit(code)
