"""The backend of torch.distributed is compared with gloo, if torch is installed."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from engine_dp._library import program

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

    def test_script_of_gloo_alone_under_engine_launch(self):
        script = "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(3); " \
                 "d.all_reduce(t); assert t.tolist() == [2.0] * 3; d.destroy_process_group()"
        done = subprocess.run([program(), "launch", "-n", "2", sys.executable, "-c", script], capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_profile(self):
        for world in ("engine", "cpu:engine,cuda:gloo"):
            with self.subTest(world=world), tempfile.TemporaryDirectory() as folder:
                run_ranks(self, "ranks_profile.py", 2, world, folder)


if __name__ == "__main__":
    unittest.main()
