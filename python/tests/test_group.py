"""Groups of one, two and three ranks, started by 'engine launch'."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from engine_dp._library import program

RANKS = pathlib.Path(__file__).with_name("ranks.py")


class Groups(unittest.TestCase):
    def launch(self, ranks, part, *words, **more):
        command = [program(), "launch", "-n", str(ranks), sys.executable, RANKS, part, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **more})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_one_rank_that_nobody_started(self):
        done = subprocess.run([sys.executable, RANKS, "calls"], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_calls(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                self.launch(ranks, "calls")
        self.launch(2, "calls", TEST_ORDER="ring")

    def test_failures(self):
        self.launch(3, "failures")

    def test_trace(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks), tempfile.TemporaryDirectory() as folder:
                self.launch(ranks, "trace", folder)

    def test_programs_that_end_early(self):
        command = [program(), "launch", "-n", "3", sys.executable, RANKS, "ends"]
        for _ in range(3):
            done = subprocess.run(command, capture_output=True, text=True, timeout=50)
            self.assertEqual(done.returncode, 3, done.stdout + done.stderr)

    def test_interrupts(self):
        with tempfile.TemporaryDirectory() as folder:
            self.launch(2, "interrupted", folder)

    def test_emulated_ports(self):
        self.launch(2, "emulated")


if __name__ == "__main__":
    unittest.main()
