"""ParameterServer over the engine and over gloo, if torch is installed."""

import unittest

from test_torch import run_ranks, torch


@unittest.skipIf(torch is None, "torch is not installed")
class Server(unittest.TestCase):
    def test_two_ranks(self):
        run_ranks(self, "ranks_server.py", 2, "engine", "same_as_ddp", "bytes_are_the_formula", "in_turn", "mistakes",
                  "uneven")

    def test_three_ranks(self):
        run_ranks(self, "ranks_server.py", 3, "engine", "same_as_ddp", "bytes_are_the_formula", "in_turn",
                  "in_order_of_arrival")

    def test_gloo(self):
        run_ranks(self, "ranks_server.py", 3, "gloo", "same_as_ddp", "in_turn", "in_order_of_arrival")


if __name__ == "__main__":
    unittest.main()
