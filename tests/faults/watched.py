"""Runs a rank as `watched.py SIGNS COMMAND...`, leaves its exit code in SIGNS/ended.RANK.ATTEMPT and ends alike.

For launchers that keep the codes of their ranks to themselves. Run with -I -S, so that nothing is put into it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

child = subprocess.Popen(sys.argv[2:])
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: child.send_signal(number))
code = child.wait()
name = f"ended.{os.environ['RANK']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}"
Path(sys.argv[1], name).write_text(str(code))
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
