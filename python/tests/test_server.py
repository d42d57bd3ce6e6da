"""ParameterServer over the engine and over gloo, if torch is installed."""

import os
import pathlib
import socket
import subprocess
import sys
import unittest

from test_torch import run_ranks, torch


@unittest.skipIf(torch is None, "torch is not installed")
class Server(unittest.TestCase):
    def test_two_ranks(self):
        run_ranks(self, "ranks_server.py", 2, "engine", "same_as_ddp", "begun_alike", "scheduled",
                  "bytes_are_the_formula", "in_turn", "complex_norm", "mistakes", "uneven")

    def test_three_ranks(self):
        run_ranks(self, "ranks_server.py", 3, "engine", "same_as_ddp", "begun_alike", "scheduled",
                  "bytes_are_the_formula", "in_turn", "in_order_of_arrival", "two_in_order_of_arrival")

    def test_gloo(self):
        run_ranks(self, "ranks_server.py", 3, "gloo", "same_as_ddp", "begun_alike", "scheduled", "in_turn",
                  "in_order_of_arrival", "two_in_order_of_arrival")

    def test_beside_another_backend(self):
        run_ranks(self, "ranks_server.py", 3, "cpu:engine,cuda:gloo", "in_order_of_arrival")

    def test_a_worker_that_dies(self):
        """Without torchrun, which ends all ranks when one dies."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = str(s.getsockname()[1])
        script = pathlib.Path(__file__).with_name("ranks_server.py")
        ranks = [subprocess.Popen([sys.executable, script, "engine", "dies"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1",
                                       "MASTER_PORT": port, "WORLD_SIZE": "3", "RANK": str(r)}) for r in range(3)]
        for r in ranks:
            self.addCleanup(r.kill)
        texts = [r.communicate(timeout=120)[0] for r in ranks]
        self.assertEqual([r.returncode for r in ranks], [0, 0, -9], texts)


if __name__ == "__main__":
    unittest.main()
