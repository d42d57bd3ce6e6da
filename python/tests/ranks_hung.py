"""A rank of test_inspect.py: all make the same calls, until rank 1 does not come, or all end."""

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
    sys.exit(0)  # without closing the group
if part == "closes":
    g.close()
    sys.exit(0)
if part == "messages":  # 0 and 1 wait for each other; 2 has sent 1 something else, and waits for whom it does not say
    x = np.ones(1000, "f4")
    if g.rank == 0:
        asked = [g.recv(np.ones(3, "u1"), 1, 100 + k, wait=False) for k in range(10)]  # that nobody waits for
        g.recv(x, 1, tag=7)
    if g.rank == 2:
        g.send(x, 1, tag=6)
        g.recv(np.ones(1, "u1"), tag=8)
    g.recv(x, 2, tag=6)
    g.recv(np.ones(50, "i4"), 0, tag=3)
if g.rank == 1 and part == "late":
    time.sleep(600)
if g.rank == 1 and part == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
g.all_reduce(np.ones(1 << 18, "f4"))
