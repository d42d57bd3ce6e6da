"""A rank of test_inspect.py: it makes the same calls as the others, until the one that is named here does not come."""

import os
import signal
import sys
import time

import numpy as np

import engine_dp

part = sys.argv[1]
g = engine_dp.Group()
g.call_it("hung job")
halves = g.split(g.rank // 2)
for k in range(4):
    g.all_reduce(np.ones(1000, "f4"))
halves.broadcast(np.zeros(10, "u1"))
if part == "exits":
    sys.exit(0)  # and closes nothing
if part == "closes":
    g.close()
    sys.exit(0)
if g.rank == 1 and part == "late":
    time.sleep(600)
if g.rank == 1 and part == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
g.all_reduce(np.ones(1 << 18, "f4"))
