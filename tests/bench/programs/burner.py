"""Uses all that it gets of the CPU that is given, until its parent ends it or is gone."""

import os
import sys

os.sched_setaffinity(0, {int(sys.argv[1])})
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
