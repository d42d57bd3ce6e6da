"""The backend of torch.distributed beside gloo, where torch is installed."""

import os
import pathlib
import subprocess
import sys
import unittest

try:
    import torch  # noqa: F401
except ImportError:
    torch = None

RANKS = pathlib.Path(__file__).with_name("ranks_torch.py")


@unittest.skipIf(torch is None, "torch is not installed")
class Backend(unittest.TestCase):
    def run_ranks(self, size, *parts):
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size), RANKS, *parts],
                              capture_output=True, text=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_two_ranks(self):
        self.run_ranks(2, "collectives", "sums", "sparse", "messages", "objects", "data_parallel", "parts", "wrong")

    def test_three_ranks(self):
        self.run_ranks(3, "collectives", "messages", "objects", "data_parallel", "parts")


if __name__ == "__main__":
    unittest.main()
