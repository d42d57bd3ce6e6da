"""The backend of torch.distributed is compared with gloo, if torch is installed."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch  # noqa: F401
except ImportError:
    torch = None


def run_ranks(test, script, size, *words, **env):
    """Runs a script of this folder on 'size' ranks, which all must end well, and gives what they print."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size),
               pathlib.Path(__file__).with_name(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280,
                          env={**os.environ, "OMP_NUM_THREADS": "1", **env})
    test.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    return done.stdout


@unittest.skipIf(torch is None, "torch is not installed")
class Backend(unittest.TestCase):
    def test_two_ranks(self):
        run_ranks(self, "ranks_torch.py", 2, "gloo", "collectives", "sums", "sparse", "messages", "objects",
                  "data_parallel", "parts", "wrong")

    def test_three_ranks(self):
        run_ranks(self, "ranks_torch.py", 3, "gloo", "collectives", "messages", "objects", "data_parallel", "parts",
                  "wrong")

    def test_groups_that_come_and_go(self):
        run_ranks(self, "ranks_torch.py", 2, "engine", "again")
        run_ranks(self, "ranks_torch.py", 3, "gloo", "dies")

    def test_beside_other_backends(self):
        run_ranks(self, "ranks_torch.py", 2, "gloo", "beside")
        run_ranks(self, "ranks_torch.py", 3, "cpu:engine,cuda:gloo", "messages", "objects", "data_parallel")

    def test_profile(self):
        for world in ("engine", "cpu:engine,cuda:gloo"):
            with self.subTest(world=world), tempfile.TemporaryDirectory() as folder:
                run_ranks(self, "ranks_profile.py", 2, world, folder)


if __name__ == "__main__":
    unittest.main()
