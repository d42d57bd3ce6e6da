"""compress_hook over the engine and over gloo, if torch is installed."""

import unittest

from test_torch import run_ranks, torch


@unittest.skipIf(torch is None, "torch is not installed")
class Compress(unittest.TestCase):
    def test_two_ranks(self):
        run_ranks(self, "ranks_compress.py", 2, "engine")

    def test_three_ranks(self):
        run_ranks(self, "ranks_compress.py", 3, "engine")

    def test_gloo(self):
        run_ranks(self, "ranks_compress.py", 2, "gloo")


if __name__ == "__main__":
    unittest.main()
