"""Issues a collective, says which process it is (FILE), and waits for nothing."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
Path(sys.argv[1] + ".part").write_text(str(os.getpid()))
Path(sys.argv[1] + ".part").rename(sys.argv[1])
time.sleep(600)
